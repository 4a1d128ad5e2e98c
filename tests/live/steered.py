"""A training job in the local cloud that `gpu-spot jobs` stops, resumes and shows."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from gpu_spot import cli
from gpu_spot.jobs import command as jobs
from market.replay.ledger import Span
from market.rules import Rules
from rehearsal.machines.process import TrainingProfile
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
