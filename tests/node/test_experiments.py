"""Experiments that share a group: none is run by two, none is forgotten, none is run after its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.agent.experiments import by_name, run_of
from contracts.stored import ContractError
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.interleave import Line
from tests.node.job_table import Attributes
from tests.node.node_instances import NoHeartbeats, SharedTables
from tests.node.world import KilledError
from userdata.agent import tasks
from userdata.agent.aws.experiments import ExperimentTable
from userdata.agent.aws.imds import IdentityDocument
from userdata.agent.lease.experiment_selection import (
    AllFinished,
    ExperimentLease,
    TakeExperiment,
    WaitForLease,
    choose_experiment,
)
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.lease.store import LEASE_SECONDS
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.tasks import holding
from userdata.agent.tasks import job as job_tasks
from userdata.agent.tasks.groups import experiments
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.work.failures.fault_handler import RunEnd
from userdata.agent.work.heartbeat import HeartbeatSender

MATRIX: Final = {"LR": ["0.1", "0.01"], "SEED": ["1", "2"]}
STEPS: Final = 3
_STEP_SECONDS: Final = 20.0
_MOST_TURNS: Final = 20_000


@dataclass
class World:
    """What all see, and what really happened."""

    names: tuple[str, ...] = tuple(by_name("resnet", MATRIX))
    items: dict[str, Attributes] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    writers: dict[str, tuple[str, Callable[[], float]]] = field(default_factory=dict)
    """Who runs an experiment, and when it is dead at the latest."""
    runs: list[tuple[str, str, int]] = field(default_factory=list)
    """Instance, experiment, the step that it went on from."""
    ends: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    fails: frozenset[str] = frozenset()
    clock: FakeClock = field(default_factory=FakeClock)

    def begin(self, name: str, me: str, dead_at: Callable[[], float]) -> None:
        assert not self.ends.get(name), f"{name} is run after its end"
        if name in self.writers:
            other, until = self.writers[name]
            assert other == me or until() <= self.clock.monotonic(), f"{name} is run by {other} and {me}"
        self.writers[name] = me, dead_at
        self.runs.append((me, name, self.steps.get(name, 0)))

    def leave(self, name: str, me: str) -> None:
        if self.writers.get(name, ("",))[0] == me:
            del self.writers[name]

    def dies(self, me: str) -> None:
        for name in [name for name, (one, _) in self.writers.items() if one == me]:
            del self.writers[name]


class _Host:
    """Nothing is mounted, and nothing runs."""

    def mounted(self, path: Path) -> None:
        return None


class Instance:
    """One instance's agent, started again by systemd while it fails; ``point`` is called at each call."""

    def __init__(self, world: World, me: str, folder: Path, chance: random.Random | None = None) -> None:
        self.world, self.me, self.chance = world, me, chance
        self.points = 0
        self.stop_at: int | None = None
        self.dies = False
        self.error: BaseException | None = None
        self.line = Line(self._live)
        training_ = {**configs.training()["training"], "experiments": MATRIX}
        efs = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/dltraining/checkpoints"}]
        config = configs.load(configs.training(volume=None, efs=efs, training=training_))
        self.node = tasks.Node(config, folder, "http://nowhere")
        self.node.run_in_background = at_once
        self.node.__dict__["identity"] = IdentityDocument(me, "us-west-2a", "us-west-2", "g5.xlarge")
        self.node.clock = _Clock(self)
        self.node.host = _Host()  # type: ignore[assignment]
        self.node.heartbeat_sender = NoHeartbeats  # type: ignore[method-assign,assignment]
        tables = SharedTables(world.items, world.finished, point=self.point)
        self.node.clients = SimpleNamespace(dynamodb=lambda _: tables, ssm=lambda _: tables)  # type: ignore[assignment]

    def point(self, operation: str) -> None:
        at, self.points = self.points, self.points + 1
        if at == self.stop_at:
            if self.dies:
                raise KilledError(self.me)
            self.line.pause(0.0)
        elif self.chance is not None and (drawn := self.chance.random()) < 0.15:
            if drawn < 0.004:
                raise KilledError(self.me)
            if drawn < 0.01:
                raise AgentError(f"{operation}: no answer")
            seconds = self.chance.uniform(100, 400) if drawn < 0.03 else self.chance.uniform(0, 3)
            self.line.pause(self.world.clock.monotonic() + seconds)

    def _live(self) -> None:
        try:
            while True:
                try:
                    if experiments.run(self.node, Stop(), self._train) == "done":
                        return
                except AgentError:
                    self.node.clock.sleep(10)
        except KilledError:
            self.world.dies(self.me)
        except BaseException as error:
            self.error = error

    def _train(self, one: Node, stop: Stop, heartbeats: HeartbeatSender) -> RunEnd:
        name = job_tasks.training(one).job
        held = job_tasks.lease_and_volume(one)
        jobs, clock = job_tasks.jobs(one), self.world.clock
        lease_renewer = LeaseRenewer(partial(job_tasks.leases(one).renew, held[0]), clock, LEASE_SECONDS)
        jobs.mark("running")
        lease_renewer.renew_if_due()
        self.world.begin(name, self.me, lambda: lease_renewer.fence_at)
        try:
            while (step := self.world.steps.get(name, 0)) < STEPS:
                one.clock.sleep(_STEP_SECONDS)
                self.point("step")
                if clock.monotonic() >= lease_renewer.fence_at:  # the fence has struck meanwhile
                    raise LeaseLostError(name)
                lease_renewer.renew_if_due()
                assert self.world.writers[name][0] == self.me
                assert self.world.steps.get(name, 0) == step
                self.world.steps[name] = step + 1
            state = "failed" if name in self.world.fails else "done"
            jobs.mark(state)  # type: ignore[arg-type]
            self.world.ends[name] = self.world.ends.get(name, 0) + 1
        finally:
            self.world.leave(name, self.me)
        holding.release(one)
        return state  # type: ignore[return-value]


class _Clock(FakeClock):
    def __init__(self, instance: Instance) -> None:
        super().__init__()
        self._instance = instance

    def wall(self) -> float:
        return self._instance.world.clock.wall()

    def monotonic(self) -> float:
        return self._instance.world.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._instance.line.pause(self.monotonic() + max(seconds, 0.0))


def go(instances: list[Instance], is_over: Callable[[], bool], chance: random.Random | None = None) -> None:
    """Let them run in the order of time, or any that is due by ``chance``, until it is over."""
    for _ in range(_MOST_TURNS):
        alive = [one for one in instances if not one.line.done]
        if not alive or is_over():
            return
        clock = alive[0].world.clock
        due = [one for one in alive if one.line.wake <= clock.monotonic()]
        if not due:
            clock.advance(min(one.line.wake for one in alive) - clock.monotonic())
            continue
        (chance.choice(due) if chance else due[0]).line.resume()
    raise AssertionError("it comes to no end")


def check(world: World, instances: list[Instance], *, all_ended: bool = True) -> None:
    for one in instances:
        if one.error is not None:
            raise one.error
    if all_ended:
        assert {name: world.steps.get(name) for name in world.names} == dict.fromkeys(world.names, STEPS)
        assert {world.items[name]["state"]["S"] for name in world.names} <= {"done", "failed"}
        assert world.finished


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
    assert one.config.training.environment == {"LR": "0.1", "SEED": "1"}
    assert job_tasks.checkpoints(one) == Path("/dltraining/checkpoints") / name
    # What it holds is found again by another process of the machine, and the checkout serves all.
    job_tasks.record_lease_and_volume(one, 7)
    assert job_tasks.checkpoints(job_tasks.current_job(instance.node)) == job_tasks.checkpoints(one)
    assert job_tasks.lease_and_volume(instance.node) == (7, "")
    assert job_tasks.code(one) == job_tasks.code(instance.node)


def test_experiments_with_a_volume_are_rejected() -> None:
    training = {**configs.training()["training"], "experiments": MATRIX}
    with pytest.raises(ContractError, match=r"training\.experiments cannot be set with volume"):
        configs.load(configs.training(training=training))


def test_what_dynamodb_leaves_out_is_read_later() -> None:
    """It throttles the table: five reads in the same moment would be left out, too."""
    waits: list[float] = []
    least = 3

    def batch_get_item(RequestItems: Any) -> Any:  # noqa: N803 - boto3's name
        return {"Responses": {}, "UnprocessedKeys": RequestItems if len(waits) < least else {}}

    dynamodb: Any = SimpleNamespace(batch_get_item=batch_get_item)
    table = ExperimentTable(dynamodb, "jobs", ["resnet"], "r1", waits.append)
    assert table.read_leases().keys() == {"resnet"}
    assert waits == [0.0, 0.1, 0.2]
    least = 100
    with pytest.raises(AgentError, match="1 items not read because of throttling"):
        table.read_leases()
