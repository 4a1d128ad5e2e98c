"""A job with a schedule: its nights, on the deployed controller and the agents of its instances."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import pytest

from contracts import names
from contracts.jobs.run import SCHEDULED, folder, time_of
from gpu_spot.jobs.reader import JobError
from lambdas.aws import settings
from market.replay.ledger import Span
from market.rules import Rules
from rehearsal.machines.group import Nodes, playing
from rehearsal.machines.process import TrainingProfile
from tests.apart import apart
from tests.docs.commands import ROOT
from tests.e2e.world import START, World, living, load
from tests.live.moves import MINUTES, SPOT_ALONE, ZONES, market, research
from tests.live.test_jobs import run_command

CLOSED = {ZONES[0]: range(0), ZONES[1]: range(0), ZONES[2]: range(0, MINUTES, 2)}
PROFILE = TrainingProfile(steps=20, checkpoint_steps=5)
REVISION = "9289c9d8e1655a3411aef16cab7b8a2735b3f57f"
OTHERS = json.dumps({"time": "2026-01-05T00:50:00Z", "revision": "f" * 40})
NEVER = json.dumps({"time": "2999-01-05T00:50:00Z"})
Acts = dict[int, Callable[[World], Any]]


def write(leaf: str, value: str) -> Callable[[World], None]:
    name = names.group_parameter("research", "resnet", leaf)
    return lambda world: world.clients("ssm").put_parameter(Name=name, Value=value, Overwrite=True)


def fire(world: World) -> str:
    """Do what EventBridge Scheduler does: call the target's operation with its input."""
    scheduler = world.clients("scheduler")
    [listed] = scheduler.list_schedules()["Schedules"]
    schedule = scheduler.get_schedule(Name=listed["Name"])
    assert schedule["ScheduleExpressionTimezone"] == "Europe/Berlin"
    assert schedule["Target"]["Arn"].endswith(":aws-sdk:ssm:putParameter")
    assert json.loads(schedule["Target"]["Input"])["Value"] == SCHEDULED
    time = time_of(world.clock.now)
    text = schedule["Target"]["Input"].replace("<aws.scheduler.scheduled-time>", time)
    world.clients("ssm").put_parameter(**json.loads(text))
    return time


def guide(action: str) -> Callable[[World], str]:
    """Run a command of docs/guides.md, with this job and stack."""
    text = (ROOT / "docs" / "guides.md").read_text("utf-8")
    [line] = re.findall(rf"^gpu-spot jobs {action} tune(.*) --stack prod$", text, re.M)
    return lambda world: run_command(world, action, "resnet", *line.split(), stack=world.deployment.stack)


def nights() -> dict[str, Any]:
    """Two nights, one that was missed, and one by hand, on a volume; in between wrong requests."""
    changed = {**SPOT_ALONE, "training[0].schedule": {**WHEN, "keepRuns": 3}}
    pause, go_on = (write("control", json.dumps({"mode": mode})) for mode in ("paused", "automatic"))
    acts: Acts = {
        **{2: fire, 9: fire, 20: write("request", OTHERS), 22: write("request", "x" * 4000)},
        **{24: write("request", NEVER), 28: fire, 46: pause, 48: fire, 65: go_on},
        **{84: guide("run"), 91: guide("show"), 95: guide("stop")},
    }
    with research(changed, PROFILE) as (world, nodes, _):
        seen = played(world, nodes, acts, 104)
        [home] = world.clients("ec2").describe_volumes(
            Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
        )["Volumes"]
        folder = nodes.disks.folder(home["VolumeId"]) / "checkpoints" / "resnet"
        return {**seen, "folders": {path.name: len([*path.glob("step-*")]) for path in folder.iterdir()}}


WHEN = {"at": "cron(0 2 * * ? *)", "timeZone": "Europe/Berlin"}


def waiting() -> dict[str, Any]:
    """A night and a run by hand during a night, which wait, with checkpoints on EFS and a deadline each."""
    changed = {
        "training[0].schedule": {**WHEN, "overlap": "wait", "keepRuns": 1},
        "training[0].deadlineAfter": "PT2H",
        "training[0].capacity.fallback": {"enabled": True},
    }
    with (
        living(load("research-efs", changed)) as world,
        playing(world.clients, world.clock, PROFILE) as nodes,
    ):
        refused = partial(pytest.raises, JobError, guide("run"))
        acts: Acts = {2: fire, 5: guide("run"), 6: fire, 7: lambda w: str(refused(w).value), 8: deadline}
        return played(world, nodes, acts, 64)


def deadline(world: World) -> float:
    return settings.parse("resnet", texts(world)).group.config.deadline


def texts(world: World) -> dict[str, str]:
    root = names.parameter_root(world.deployment.stack)
    return settings.read_group_parameters(world.clients("ssm"), root)["resnet"]


def played(world: World, nodes: Nodes, acts: Acts, ends: int) -> dict[str, Any]:
    replay = market(world, nodes, Rules(warm_up_ticks=0, notice=1.0), CLOSED)
    did, states = dict[int, Any](), list[tuple[str, str, str]]()
    alive = dict[int, int]()

    def on_tick(tick: int, span: Span) -> None:
        for at in [at for at in acts if at <= tick and at not in did]:
            did[at] = acts[at](world)
        [job] = json.loads(run_command(world, "list", "--json", stack=world.deployment.stack))
        states.append((job["revision"].removeprefix(REVISION), job["state"], job["why"]))
        alive[tick] = len(world.cloud.alive("resnet"))

    replay.run(ends, on_tick)
    nodes.advance(START + ends * 60)
    return {
        "did": did,
        "states": states,
        "alive": alive,
        "first_steps": [entry.step for entry in nodes.journal.entries if entry.kind == "running"],
        "run": json.loads(texts(world)["run"]),
        "finished": texts(world)["finished"],
    }


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(nights)


@pytest.fixture(scope="module")
def waited() -> dict[str, Any]:
    return apart(waiting)


def ids(seen: dict[str, Any]) -> list[str]:
    return [run for run, _ in groupby(run for run, _, _ in seen["states"])]


def test_each_night_is_a_run_that_trains_from_its_first_step(seen: dict[str, Any]) -> None:
    first, second, missed = (folder(seen["did"][minute]) for minute in (2, 28, 48))
    assert ids(seen)[:4] == ["", f"@{first}", f"@{second}", f"@{missed}"]
    assert len(ids(seen)) == 5
    assert seen["first_steps"] == [0] * 4
    assert {run for run, state, _ in seen["states"] if state == "done"} == set(ids(seen)[1:4])
    assert seen["finished"] == f"{REVISION}{ids(seen)[-1]}"


def test_between_nights_nothing_runs(seen: dict[str, Any]) -> None:
    assert [minute for minute in (1, 20, 27, 47, 64, 83, 103) if seen["alive"][minute]] == []
    assert [minute for minute in (8, 34, 72, 90) if not seen["alive"][minute]] == []


def test_a_request_during_a_run_is_skipped_and_a_missed_one_comes_later(seen: dict[str, Any]) -> None:
    texts = {why for _, _, why in seen["states"]}
    assert any(f"the run of {seen['did'][9]} was skipped" in text for text in texts)
    late = [run for run, _, _ in seen["states"]].index(f"@{folder(seen['did'][48])}")
    assert 65 <= late <= 68


def test_wrong_requests_start_nothing_and_are_shown(seen: dict[str, Any]) -> None:
    assert len({run for run, _, _ in seen["states"][18:28]}) == 1
    for minute, words in ((21, "not a known key"), (23, "not JSON"), (26, "not be in the future")):
        assert words in seen["states"][minute][2]


def test_a_run_by_hand_has_its_variables_and_arguments(seen: dict[str, Any]) -> None:
    assert seen["did"][84].startswith("requested run ")
    request = seen["run"]["request"]
    assert (request["environment"], request["arguments"]) == ({"EPOCHS": "1"}, ["--lr=1e-5"])
    assert f"{REVISION}{ids(seen)[-1]}" in seen["did"][91]
    assert "saves a checkpoint and terminates" in seen["did"][95]
    assert seen["states"][-1][1] == "stopped"


def test_the_newest_runs_keep_their_checkpoints(seen: dict[str, Any]) -> None:
    assert seen["folders"].keys() == {run.removeprefix("@") for run in ids(seen)[2:]}
    assert all(seen["folders"].values())


def test_requests_that_wait_follow_the_run_in_their_order(waited: dict[str, Any]) -> None:
    first, second = (folder(waited["did"][minute]) for minute in (2, 6))
    by_hand = re.findall(r"requested run (\S+) of", waited["did"][5])[0]
    assert ids(waited) == ["", f"@{first}", f"@{by_hand}", f"@{second}"]
    both = r"requested for \S+, then for \S+ and waits for the end of this one"
    assert any(re.search(both, why) for _, _, why in waited["states"])
    assert "has not begun; one waits at most" in waited["did"][7]
    assert waited["first_steps"] == [0, 0, 0]
    assert waited["finished"] == f"{REVISION}@{second}"
    began = [minute for minute, count in waited["alive"].items() if count]
    assert max(waited["alive"].values()) == 1
    assert set(range(min(began), max(began))) - set(began)  # the first instance goes before the second comes


def test_a_deadline_counts_from_the_begin_of_its_run(waited: dict[str, Any]) -> None:
    assert 2 * 60 <= waited["did"][8] - 7200 - START <= 4 * 60
