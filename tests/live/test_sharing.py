"""Experiments that share a group all finish, whichever instance is lost."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from contracts import names
from market.replay.ledger import Span
from market.rules import Rules
from rehearsal.machines.group import playing
from rehearsal.machines.process import TrainingProfile
from tests.apart import in_json
from tests.e2e.world import START, World, living, load
from tests.live.moves import ZONES, market
from tests.live.test_jobs import run_command

STEPS, ENDS = 4, 50
SHARED: dict[str, Any] = {
    "training[0].matrix": {"SEED": [str(number) for number in range(21)]},
    "training[0].capacity.target": 2,
    "training[0].capacity.max": 4,
    "training[0].capacity.fallback.enabled": False,
}
# Zone a is lost twice; the last opens and closes all the time, so that every minute is played.
CLOSED = {ZONES[0]: range(9, 18), ZONES[1]: range(23, 31), ZONES[2]: range(0, ENDS, 2)}


def looked(world: World, *words: str) -> Any:
    """What `gpu-spot jobs` prints."""
    return json.loads(run_command(world, *words, "--json", stack="research-efs"))


def played() -> dict[str, Any]:
    """Let all of them come to their end."""
    profile = TrainingProfile(steps=STEPS, checkpoint_steps=1)
    with living(load("research-efs", SHARED)) as world, playing(world.clients, world.clock, profile) as nodes:
        replay = market(world, nodes, Rules(warm_up_ticks=0, notice=0.0), CLOSED)
        twice, phases, alive = Counter[str](), list[Counter[str]](), list[int]()

        def on_tick(tick: int, span: Span) -> None:
            alive.append(len(world.cloud.alive("resnet")))
            if tick % 6 == 5:
                listed = looked(world, "list")[1:]
                phases.append(Counter(one["state"] for one in listed))
                held = Counter(one["host"]["instance"] for one in listed if one["host"])
                twice.update({instance: 1 for instance, count in held.items() if count > 1})

        replay.run(ENDS, on_tick)
        nodes.advance(START + ENDS * 60)
        listed = looked(world, "list")
        # The lease's token counts how often one was taken.
        items = world.clients("dynamodb").scan(TableName=world.deployment.outputs["jobTable"])["Items"]
        lost = sorted(item["job"]["S"] for item in items if int(item.get("token", {"N": "0"})["N"]) > 1)
        shown = [looked(world, "show", name) for name in lost if "#" not in name]
        finished = names.group_parameter("research-efs", "resnet", names.PARAMETER_FINISHED)
        return {
            "group": listed[0],
            "states": [one["state"] for one in listed[1:]],
            "endings": [[stay["ending"] for stay in one["timeline"]] for one in shown],
            "first_steps": sorted(entry.step for entry in nodes.journal.entries if entry.kind == "running"),
            "twice": dict(twice),
            "phases": phases,
            "most": max(alive),
            "alive": alive[-1],
            "finished": world.clients("ssm").get_parameter(Name=finished)["Parameter"]["Value"],
        }


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return in_json(played)


def test_all_come_to_their_end_and_the_group_goes(seen: dict[str, Any]) -> None:
    assert seen["states"] == ["done"] * 21
    assert seen["group"]["state"] == "done"
    assert seen["group"]["why"] == "21 of 21 experiments done, 0 running"
    assert seen["finished"] == seen["group"]["revision"]
    assert (seen["most"], seen["alive"]) == (2, 0)


def test_an_experiment_of_a_lost_instance_resumes_from_its_checkpoint(seen: dict[str, Any]) -> None:
    # Two are lost without notice; nothing else is taken twice.
    assert seen["endings"] == [["loss", "done"]] * 2
    assert 21 <= len(seen["first_steps"]) <= 21 + 2
    assert max(seen["first_steps"]) > 0


def test_they_are_watched_as_jobs(seen: dict[str, Any]) -> None:
    assert {"pending", "running", "done", "waiting for a host"} == {
        one for phase in seen["phases"] for one in phase
    }
    assert max(phase.get("running", 0) for phase in seen["phases"]) == 2
    assert not seen["twice"]
