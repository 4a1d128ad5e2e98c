"""The same market against both fleets: in memory, and in the whole local cloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from gpu_spot.status.decisions import describe_action
from lambdas.core.action_log import describe
from lambdas.core.capacity.memory import Memory
from market.replay.engine import Replay
from tests.e2e.market_conditions import HOSTILE_AWS, Conditions
from tests.e2e.world import living, load
from tests.fleets import ForgettingFleet, RecordingFleet

Actions: TypeAlias = dict[float, tuple[str, ...]]
Account: TypeAlias = dict[str, Any]
POOL_SIZE: Final = 2
"""Less than the target: a group gets a part of what it wants, and is refused the rest."""


def described(action: Any) -> str:
    """Return an action as ``gpu-spot status`` shows it."""
    return describe_action(describe(action))


def account(replay: Replay, memory: Memory) -> Account:
    """Return what a replay came to, and what the controller learned in it."""
    ledger, history = replay.ledger, memory.history
    learned = {
        f"{pool} {name}": value
        for pool, record in history.pools.items()
        for name, value in asdict(record).items()
        if value is not None
    }
    refused = Counter(f"refusal of {h.where}" for h in ledger.happenings if h.kind == "refusal")
    return {
        "availability": ledger.availability,
        "cost": ledger.cost,
        "full": ledger.full_fraction,
        "wasted": ledger.wasted_fraction,
        **ledger.counts,
        **refused,
        **learned,
        "losses": history.losses,
        "unannounced losses": history.unannounced,
        "boots that differ": len({boot for boots in memory.boots.values() for boot in boots}) > 2,
        **{f"boots {market}": sum(boots) for market, boots in memory.boots.items()},
    }


def both(
    stack: str,
    overrides: Mapping[str, Any],
    seed: int,
    hours: float,
    files: Sequence[Path] = (),
    pool_size: int = POOL_SIZE,
    doubt: Conditions = HOSTILE_AWS,
) -> tuple[list[Actions], list[Account]]:
    """Replay the same market against both fleets; return what was done when, and what it came to."""
    config = load(stack, overrides)
    with living(config, seed) as world:
        group, chosen = world.group.group, world.group.policy
        kind = ForgettingFleet if stack == "fleet" else RecordingFleet
        light = kind(group, chosen, weights=world.view.weights)
        in_memory = world.replay(light, hours, files, pool_size, doubt)
        in_memory.run(round(hours * 60))
        fleet = world.fleet()
        in_cloud = world.replay(fleet, hours, files, pool_size, doubt)
        in_cloud.run(round(hours * 60))
        remembered = fleet.store.load(fleet.group).memory
    wanted: Actions = {}
    for at, decision in light.decisions:
        wanted[at] = wanted.get(at, ()) + tuple(described(action) for action in decision.actions)
    done: Actions = {}
    for line in fleet.decisions:
        done[line.at] = done.get(line.at, ()) + line.actions
    acted = [{at: actions for at, actions in each.items() if actions} for each in (wanted, done)]
    return acted, [account(in_memory, light.memory), account(in_cloud, remembered)]


def differences(acted: Sequence[Actions], accounts: Sequence[Account], apart_from: str = "") -> Iterator[str]:
    """Yield where the fleets differ: when they acted otherwise, then what it came to."""
    wanted, done = acted
    for at in sorted(wanted.keys() | done.keys()):
        if done.get(at) != wanted.get(at):
            yield f"{at:.0f}: {wanted.get(at, ())} in memory, {done.get(at, ())} in the cloud"
    in_memory, in_cloud = accounts
    for name in sorted(in_memory.keys() | in_cloud.keys()):
        if apart_from and apart_from in name:
            continue
        one, other = in_memory.get(name), in_cloud.get(name)
        if one is None or other is None or other != pytest.approx(one):
            yield f"{name}: {one} in memory, {other} in the cloud"
