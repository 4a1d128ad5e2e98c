"""Experiments that share a group: none is run by two, none is forgotten, none is run after its end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.agent.experiments import by_name, run_of
from contracts.stored import ContractError
from tests.node import configs
from tests.node.sharing import MATRIX, Instance, World, check, go
from userdata.agent.lease.experiment_selection import (
    AllFinished,
    ExperimentLease,
    TakeExperiment,
    WaitForLease,
    choose_experiment,
)
from userdata.agent.tasks import job as job_tasks

NOW = 1_700_000_000.0
FAILS = frozenset([next(iter(by_name("resnet", MATRIX)))])
TURNS = st.dictionaries(
    st.sampled_from([f"e{number}" for number in range(8)]),
    st.builds(
        ExperimentLease,
        has_started=st.booleans(),
        is_finished=st.booleans(),
        has_failed=st.booleans(),
        holder=st.sampled_from(["", "i-me", "i-other"]),
        expires_at=st.sampled_from([NOW - 1, NOW, NOW + 60]),
    ),
    min_size=1,
)


@given(TURNS)
def test_what_is_chosen_is_free_and_unfinished_and_nothing_free_is_left_alone(
    turns: dict[str, ExperimentLease],
) -> None:
    choice, left = (
        choose_experiment(turns, "i-me", NOW),
        {n: one for n, one in turns.items() if not one.is_finished},
    )
    free = {name for name, one in left.items() if one.holder != "i-other" or one.expires_at < NOW}
    match choice:
        case TakeExperiment(name):
            assert name in free
            mine = {one for one in free if turns[one].holder == "i-me"}
            started = {one for one in free if turns[one].has_started}
            assert name in (mine or started or free)
        case WaitForLease(count):
            assert not free
            assert count == len(left)
        case AllFinished(failed):
            assert not left
            assert set(failed) == {name for name, one in turns.items() if one.has_failed}


def test_instances_that_boot_together_ask_for_different_ones() -> None:
    turns = dict.fromkeys(by_name("resnet", {"SEED": [str(n) for n in range(200)]}), ExperimentLease())
    chosen = [choose_experiment(turns, f"i-{n:017x}", NOW) for n in range(8)]
    assert len(set(map(str, chosen))) >= 6


def test_one_instance_runs_all_of_them_one_after_another(tmp_path: Path) -> None:
    world = World(fails=FAILS)
    only = Instance(world, "i-1", tmp_path)
    go([only], lambda: False)
    check(world, [only])
    assert sorted(name for _, name, _ in world.runs) == sorted(world.names)
    run = run_of(configs.REVISION, MATRIX)
    assert world.finished == [run]
    group = world.items["resnet"]
    assert (group["state"]["S"], group["revision"]["S"]) == ("failed", run)
    assert group["reason"]["S"] == f"1 of 4 failed: {world.names[0]}"
    assert [one["S"] for one in group["experiments"]["L"]] == list(world.names)  # type: ignore[index,attr-defined]


def test_two_share_the_work(tmp_path: Path) -> None:
    world = World()
    both = [Instance(world, f"i-{n}", tmp_path / str(n)) for n in range(2)]
    go(both, lambda: False)
    check(world, both)
    assert {me for me, _, _ in world.runs} == {"i-0", "i-1"}
    assert len(world.runs) == len(world.names)  # nothing twice, nothing for nothing


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "stands still"])
def test_at_each_call_of_the_first_another_comes(dies: bool, tmp_path: Path) -> None:
    alone = Instance(World(), "i-0", tmp_path / "alone")
    go([alone], lambda: False)
    resumed = 0
    for at in range(alone.points):
        world = World(fails=FAILS)
        first, second = (Instance(world, f"i-{n}", tmp_path / f"{at}-{n}") for n in range(2))
        first.stop_at, first.dies = at, dies
        go([first], lambda first=first, at=at: first.points > at)  # type: ignore[misc]
        go([second], lambda: False)
        go([first], lambda: False)
        check(world, [first, second])
        resumed += any(me == "i-1" and step for me, _, step in world.runs)
    assert resumed > 5  # what the first had begun went on where it was


@pytest.mark.parametrize("seed", range(40))
def test_whatever_stands_still_fails_or_dies_all_come_to_their_end(seed: int, tmp_path: Path) -> None:
    chance, world = random.Random(seed), World(fails=FAILS)
    three = [Instance(world, f"i-{n}", tmp_path / str(n), chance) for n in range(3)]
    for one in three:
        one.line.wake = world.clock.monotonic() + chance.uniform(0, 60)
    go(three, lambda: False, chance)
    check(world, three, all_ended=False)
    last = Instance(world, "i-last", tmp_path / "last")
    go([last], lambda: False)
    check(world, [*three, last])
    assert set(world.ends) <= set(world.names)


def test_an_experiment_is_a_job_like_any_other(tmp_path: Path) -> None:
    instance = Instance(World(), "i-1", tmp_path)
    [name, *_] = by_name("resnet", MATRIX)
    one = job_tasks.experiment(instance.node, name)
    assert one.config.training is not None
    assert one.config.training.environment == {"LR": "0.1", "SEED": "1"}
    assert job_tasks.checkpoints(one) == Path("/dltraining/checkpoints") / name
    # What it holds is found again by another process of the machine, and the checkout serves all.
    job_tasks.record_lease_and_volume(one, 7)
    assert job_tasks.checkpoints(job_tasks.current_job(instance.node)) == job_tasks.checkpoints(one)
    assert job_tasks.lease_and_volume(instance.node) == (7, "")
    assert job_tasks.code(one) == job_tasks.code(instance.node)


def test_experiments_with_a_volume_are_rejected() -> None:
    training = {**configs.training()["training"], "experiments": MATRIX}
    with pytest.raises(ContractError, match="experiments: allowed without volume only"):
        configs.load(configs.training(training=training))
