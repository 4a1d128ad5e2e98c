"""Replay what a group would do, once for all groups that are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeAlias

from gpu_spot.forecast.ranges import LOOK_BACK, PART_HOURS, Outlook, Part, across, after
from lambdas.core.capacity import policies
from lambdas.core.model import Group, Pool
from market.replay.engine import Replay
from market.replay.fleet import LightFleet
from market.replay.groups import GroupShape
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS, Rules, ticks
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace

MOST_SLOTS: Final = 4
"""More slots are replayed as four, each of which stands for its part of them."""
MOST_POOLS: Final = 6
"""More pools are replayed as the six that a group would buy in first."""
DRAWN_POOLS: Final = 12
"""In each drawn market: a zone and a rank of types has the same pool in every question."""
SEEDS: Final = (15, 18, 9)
"""Of markets drawn with seeds 1–20 the second, the tenth and the 18th by how long their pools are empty."""
_DAYS: Final = 4
_PART: Final = ticks(PART_HOURS * 3600)

Traces: TypeAlias = tuple[PoolTrace, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """All that a group's outcome hangs on, for ``slots`` of it that are to be spot.

    ``shares`` are what spot costs in each pool, as fractions of the on-demand in its place, and ``zones``
    which zone each is in, by number; left out, each is in its own. ``drawn`` are the pools of a drawn market
    that stand for them, by default its first. ``job`` is true for work whose successor
    waits until it has let go. Equal questions have one answer.
    """

    slots: int
    shares: tuple[float, ...]
    policy: str
    knobs: tuple[tuple[str, float], ...] = ()
    fallback: bool = True
    warm: bool = False
    job: bool = False
    drain_seconds: float = 0.0
    zones: tuple[int, ...] = ()
    drawn: tuple[int, ...] = ()


def answer(question: Question, recorded: Traces | None = None) -> Outlook:
    """Return the outlook for a week: after the recorded market, else across markets of the fitted model."""
    if recorded is not None:
        return after(parts(question, tuple(_newest(trace) for trace in recorded)))
    taken = question.drawn or tuple(range(len(question.shares)))
    return across([parts(question, tuple(world[index] for index in taken)) for world in worlds()])


@cache
def worlds() -> tuple[Traces, ...]:
    """Return an easy, a middling and a hard market of the fitted model: the same for all questions."""
    return tuple(drawn(seed) for seed in SEEDS)


def drawn(seed: int) -> Traces:
    """Return one market of the fitted model, and an hour before it, which warms up."""
    return draw(DRAWN_POOLS, 24.0 * _DAYS + 1, seed)


def parts(question: Question, traces: Traces) -> list[Part]:
    """Replay a question on a market and return its whole parts, without the first hour."""
    priced = tuple(
        replace(trace, prices=(share,) * len(trace.samples))
        for trace, share in zip(traces, question.shares, strict=True)
    )
    rules = Rules(
        warm_instances=question.slots if question.warm else 0,
        warm_reuse=True,
        on_demand_price=1.0,
        drain_seconds=question.drain_seconds,
    )
    market = SpotMarket(priced, rules, 2 * question.slots if _is_probed(traces) else None)
    group = Group(
        "forecast",
        question.slots,
        2 * question.slots,
        drain_seconds=question.drain_seconds,
        fallback=question.fallback,
        break_before_make=question.job,
    )
    fleet = LightFleet(group, policies.build(question.policy, dict(question.knobs)))
    zones = question.zones or tuple(range(len(traces)))
    shape = GroupShape(tuple(Pool(f"type-{index}", f"zone-{zone}") for index, zone in enumerate(zones)))
    ledger = Replay(market, rules, fleet, shape, question.slots).run()
    return _cut(ledger, rules.warm_up_ticks, market.ticks)


def _newest(trace: PoolTrace) -> PoolTrace:
    """Return the end of a trace that is looked at, and the hour before it, which warms up."""
    count = math.ceil((LOOK_BACK * PART_HOURS + 1) * 3600 / trace.gap_seconds)
    return replace(trace, samples=trace.samples[-count:])


def _is_probed(traces: Sequence[PoolTrace]) -> bool:
    """Tell whether samples only say whether a pool gives anything."""
    return all(max(trace.samples) <= 1 for trace in traces)


def _cut(ledger: Ledger, begin: int, end: int) -> list[Part]:
    """Return the account by parts; what is left at the end is less than one."""
    count = (end - begin) // _PART
    cost, missing = [0.0] * count, [0.0] * count
    losses, unannounced = [0.0] * count, [0.0] * count
    target = ledger.target
    for span in ledger.since_warm_up():
        tick, left = span.tick - begin, span.ticks
        while left and tick // _PART < count:
            length = min(left, _PART - tick % _PART)
            cost[tick // _PART] += span.cost * length / target / _PART
            missing[tick // _PART] += max(0, target - span.ready) * length * TICK_SECONDS / 60 / target
            tick, left = tick + length, left - length
    for one in ledger.happenings:
        part = (one.tick - begin) // _PART
        if 0 <= part < count and one.kind in ("interruption", "unannounced"):
            (losses if one.kind == "interruption" else unannounced)[part] += one.count / target
    return [Part(*row) for row in zip(cost, missing, losses, unannounced, strict=True)]
