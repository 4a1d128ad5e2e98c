"""``gpu-spot jobs`` in the local cloud; the deployed controller follows its commands."""

from __future__ import annotations

import contextlib
import io
import json
from itertools import groupby
from typing import Any

import pytest

from gpu_spot import cli
from gpu_spot.jobs import command as jobs
from market.replay.ledger import Span
from market.rules import Rules
from rehearsal.machines.process import TrainingProfile
from tests.apart import apart
from tests.e2e.world import START, World
from tests.live.moves import MINUTES, SPOT_ALONE, ZONES, market, research

STEPS = 100
STOP_AT, RESUME_AT, ENDS = 30, 60, 100
# The last zone closes and opens all the time, so that every minute is played; the others sell always.
RESTLESS = {ZONES[0]: range(0), ZONES[1]: range(0), ZONES[2]: range(0, MINUTES, 2)}


def steered() -> dict[str, Any]:
    """Stop it after half an hour, resume it as long after that, and let it come to its end."""
    with research(SPOT_ALONE, TrainingProfile(steps=STEPS)) as (world, nodes, _):
        replay = market(world, nodes, Rules(warm_up_ticks=0, notice=1.0), RESTLESS)
        states, alive, said = dict[int, str](), dict[int, int](), dict[str, str]()

        def on_tick(tick: int, span: Span) -> None:
            if tick >= STOP_AT and "stop" not in said:
                said["stop"] = run_command(world, "stop", "resnet")
            if tick >= RESUME_AT and "resume" not in said:
                said["resume"] = run_command(world, "resume", "resnet")
            states[tick] = json.loads(run_command(world, "list", "--json"))[0]["state"]
            alive[tick] = len(world.cloud.alive("resnet"))

        replay.run(ENDS, on_tick)
        nodes.advance(START + ENDS * 60)
        return {
            "states": states,
            "said": said,
            "alive": alive,
            "shown": json.loads(run_command(world, "show", "resnet", "--json")),
        }


def run_command(world: World, *words: str, stack: str = "research") -> str:
    """What the command prints."""
    args = cli.parser().parse_args(["jobs", "--stack", stack, *words])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert jobs.act(args, world.clients, world.clients.region) == 0
    return out.getvalue()


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(steered)


def test_it_goes_through_the_states_in_order(seen: dict[str, Any]) -> None:
    assert [state for state, _ in groupby(seen["states"][tick] for tick in sorted(seen["states"]))] == [
        *("pending", "preparing", "running", "stopped"),
        *("waiting for a host", "moving", "running", "done"),
    ]


def test_a_stop_saves_and_lets_all_capacity_go_and_a_resume_brings_it_back(seen: dict[str, Any]) -> None:
    assert "saves a checkpoint and terminates; its volume is kept" in seen["said"]["stop"]
    assert seen["said"]["resume"].startswith("resumed resnet")
    assert seen["alive"][STOP_AT - 1] == 1
    assert not any(seen["alive"][tick] for tick in range(STOP_AT + 5, RESUME_AT + 1))
    before, after = seen["shown"]["timeline"]
    assert before["instance"] != after["instance"]
    assert (before["lost_seconds"], after["ending"]) == (0, "done")
    assert seen["shown"]["interruptions"] == 0
    assert not seen["alive"][max(seen["alive"])]  # at the end no instance runs
