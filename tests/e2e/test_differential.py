"""The replay in memory and the local cloud are one market: the same controller decides the same in both.

Everything between them is compared: program, archives, EventBridge, SQS, AWS's APIs and the adapters.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpu_spot.live.fleets import told
from gpu_spot.market.replay.engine import Replay
from lambdas.core import policies
from lambdas.core.memory import Memory
from tests.apart import apart
from tests.e2e.world import living, load, small
from tests.fleets import ForgettingFleet, RecordingFleet

Actions: TypeAlias = dict[float, tuple[str, ...]]
Account: TypeAlias = dict[str, Any]
HOURS = 24
POOL_SIZE = 2
"""Less than the target: a group gets a part of what it wants, and is refused the rest."""
SEED = 13
"""Of the fitted model's first markets the one with the most interruptions and refusals."""


def described(action: Any) -> str:
    fields = {name: getattr(action, name) for name in action.__slots__}
    return told({"action": type(action).__name__, **fields})


def account(replay: Replay, memory: Memory) -> Account:
    """Return what a replay came to, and what the controller learned in it."""
    ledger, history = replay.ledger, memory.history
    learned = {
        f"{pool} {name}": value
        for pool, record in history.pools.items()
        for name, value in asdict(record).items()
        if value is not None
    }
    return {
        "availability": ledger.availability,
        "cost": ledger.cost,
        "full": ledger.full_fraction,
        "wasted": ledger.wasted_fraction,
        **ledger.counts,
        **learned,
        "losses": history.losses,
        "unannounced": history.unannounced,
        **{f"boots {market}": sum(boots) for market, boots in memory.boots.items()},
    }


def both(
    stack: str, overrides: dict[str, Any], seed: int, files: list[Path]
) -> tuple[list[Actions], list[Account]]:
    """Replay the same market against both fleets; return what was done when, and what it came to."""
    config = load(stack, overrides)
    with living(config, seed) as world:
        group, chosen = world.group.group, world.group.policy
        kind = ForgettingFleet if stack == "fleet" else RecordingFleet
        light = kind(group, chosen, weights=world.view.weights)
        in_memory = world.replay(light, HOURS, files, POOL_SIZE)
        in_memory.run(HOURS * 60)
        fleet = world.fleet()
        in_cloud = world.replay(fleet, HOURS, files, POOL_SIZE)
        in_cloud.run(HOURS * 60)
        remembered = fleet.store.load(fleet.group).memory
    wanted: Actions = {}
    for at, decision in light.decisions:
        wanted[at] = wanted.get(at, ()) + tuple(described(action) for action in decision.actions)
    done: Actions = {}
    for line in fleet.decisions:
        done[line.at] = done.get(line.at, ()) + line.actions
    acted = [{at: actions for at, actions in each.items() if actions} for each in (wanted, done)]
    return acted, [account(in_memory, light.memory), account(in_cloud, remembered)]


def same(acted: list[Actions], accounts: list[Account], apart_from: str = "") -> Account:
    """Hold both fleets to the same actions and the same account; return that, without ``apart_from``."""
    wanted, done = acted
    in_memory, in_cloud = (
        {name: value for name, value in one.items() if not apart_from or apart_from not in name}
        for one in accounts
    )
    assert len(wanted) > 15
    for at in sorted(wanted.keys() | done.keys()):
        assert (at, done.get(at)) == (at, wanted.get(at))
    assert in_cloud == pytest.approx(in_memory)
    return in_memory


@pytest.mark.parametrize("stack", ["dev", "fleet"])
def test_the_same_decisions_with_types_of_two_sizes(stack: str) -> None:
    """AWS counts GPUs, the controller reads its counts, and the replay has them from the deployment."""
    sizes = {
        "unit": "gpus",
        "max": 24,
        "instanceTypes": ["g6.12xlarge", "g6.xlarge"],
        "fallback.warmInstances": 0,
    }
    # A hook keeps whom the primary group releases for a look longer, and its pool seems to live so long.
    account = same(*apart(both, stack, small(8, **sizes), SEED, []), apart_from=" expected")
    assert account["interruption"] > 0
    assert account["launch-on-demand"] > 0
    assert {name.partition("@")[0] for name in account if "@" in name} == {"g6.12xlarge", "g6.xlarge"}
    # Instances serve in fours, and no fewer than asked for are held: AWS launches beyond, not below.
    assert account["availability"] > 0.99


@pytest.mark.parametrize(
    ("stack", "policy"), [*(("dev", name) for name in policies.NAMES), ("fleet", policies.DEFAULT)]
)
def test_the_same_decisions_tick_by_tick(stack: str, policy: str, traces: Path | None) -> None:
    week = traces / "availability" / "1-node" / "aws-02-15-2023" if traces else None
    files = sorted(week.glob("us-west-2*.json")) if week else []
    in_memory = same(*apart(both, stack, small(4, **{"fallback.policy": policy}), SEED, files))
    assert in_memory["interruption"] > 0
    assert in_memory["launch-on-demand"] > 0
    assert in_memory["recommendation"] > 0
    assert in_memory["warm-refusal"] > 0
