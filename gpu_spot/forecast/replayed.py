"""Replays groups on Spot markets, once for all groups that are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeAlias

from gpu_spot.forecast.ranges import HISTORY_PARTS, PART_HOURS, Part, SlotForecast, across, after
from lambdas.core.capacity import policies
from lambdas.core.model import Pool
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, simulated_group
from market.replay.groups import GroupShape
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS, Rules, ticks
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace

MAX_SLOTS: Final = 4
"""Groups with more slots are replayed with this number."""
MAX_POOLS: Final = 6
"""Groups with more pools are replayed with their most preferred ones."""
DRAWN_POOLS: Final = 12
"""Pools of each drawn market; a zone and a rank of types map to the same pool in every question."""
SEEDS: Final = range(1, 13)
_DAYS: Final = 7
_PART_TICKS: Final = ticks(PART_HOURS * 3600)

Traces: TypeAlias = tuple[PoolTrace, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """The inputs that determine a group's forecast, for ``slots`` Spot slots.

    ``shares`` are the Spot prices of the pools as fractions of the On-Demand price, and ``zones`` the zone
    numbers of the pools (default: one zone each). ``drawn`` are the pools of the drawn or recorded market
    that represent them (default: the first). ``job`` is true if a successor waits until its predecessor has
    released the work. Equal questions have one answer.
    """

    slots: int
    shares: tuple[float, ...]
    policy: str
    policy_parameters: tuple[tuple[str, float], ...] = ()
    fallback: bool = True
    warm: bool = False
    job: bool = False
    drain_seconds: float = 0.0
    zones: tuple[int, ...] = ()
    drawn: tuple[int, ...] = ()


def forecast_slot(question: Question, recorded: Traces | None = None) -> SlotForecast:
    """Return the forecast of a week: after the recorded market, else across drawn markets."""
    pool_numbers = question.drawn or tuple(range(len(question.shares)))
    if recorded is not None:
        return after(parts(question, tuple(_newest(recorded[index]) for index in pool_numbers)))
    return across([parts(question, tuple(market[index] for index in pool_numbers)) for market in markets()])


@cache
def markets() -> tuple[Traces, ...]:
    """Return a week of each drawn market, the same for all questions."""
    return tuple(drawn(seed) for seed in SEEDS)


def drawn(seed: int) -> Traces:
    """Return one market of the fitted model, with an hour of warm-up."""
    return draw(DRAWN_POOLS, 24.0 * _DAYS + 1, seed)


def parts(question: Question, traces: Traces) -> list[Part]:
    """Replay a question on a market and return its complete parts, without the first hour."""
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
    market = SpotMarket(priced, rules, 2 * question.slots if _is_binary(traces) else None)
    zones = question.zones or tuple(range(len(traces)))
    pools = tuple(Pool(f"type-{index}", f"zone-{zone}") for index, zone in enumerate(zones))
    group = simulated_group(
        question.slots,
        2 * question.slots,
        drain_seconds=question.drain_seconds,
        fallback=question.fallback,
        break_before_make=question.job,
        zones=tuple(dict.fromkeys(pool.zone for pool in pools)),
    )
    fleet = LightFleet(group, policies.build(question.policy, dict(question.policy_parameters)))
    ledger = Replay(market, rules, fleet, GroupShape(pools), question.slots).run()
    return _cut(ledger, rules.warm_up_ticks, market.ticks)


def _newest(trace: PoolTrace) -> PoolTrace:
    """Return the end of a trace that is used, with an hour of warm-up."""
    count = math.ceil((HISTORY_PARTS * PART_HOURS + 1) * 3600 / trace.gap_seconds)
    return replace(trace, samples=trace.samples[-count:])


def _is_binary(traces: Sequence[PoolTrace]) -> bool:
    """Return whether samples only say whether a pool has capacity."""
    return all(max(trace.samples) <= 1 for trace in traces)


def _cut(ledger: Ledger, begin: int, end: int) -> list[Part]:
    """Split the ledger into parts; an incomplete part at the end is dropped."""
    count = (end - begin) // _PART_TICKS
    cost, missing, spot_cost = [0.0] * count, [0.0] * count, [0.0] * count
    losses, unannounced, none_ready = [0.0] * count, [0.0] * count, [0.0] * count
    target = ledger.target
    for span in ledger.since_warm_up():
        tick, remaining = span.tick - begin, span.ticks
        while remaining and tick // _PART_TICKS < count:
            length = min(remaining, _PART_TICKS - tick % _PART_TICKS)
            cost[tick // _PART_TICKS] += span.cost * length / target / _PART_TICKS
            spot = span.cost - span.on_demand  # an On-Demand slot costs 1
            spot_cost[tick // _PART_TICKS] += max(0.0, spot) * length / target / _PART_TICKS
            missing[tick // _PART_TICKS] += max(0, target - span.ready) * length * TICK_SECONDS / 60 / target
            none_ready[tick // _PART_TICKS] += 0 if span.ready else length * TICK_SECONDS / 60
            tick, remaining = tick + length, remaining - length
    for event in ledger.happenings:
        part = (event.tick - begin) // _PART_TICKS
        if 0 <= part < count and event.kind in ("interruption", "unannounced"):
            (losses if event.kind == "interruption" else unannounced)[part] += event.count / target
    rows = zip(cost, missing, losses, unannounced, spot_cost, none_ready, strict=True)
    return [Part(*row) for row in rows]
