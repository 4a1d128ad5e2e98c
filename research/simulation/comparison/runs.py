"""Replay contenders over one market and return their results."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from market.replay.engine import Replay
from market.replay.fleet import LightFleet, simulated_group
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS, Rules
from market.supply import placement
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from research.simulation.comparison.bound import bound
from research.simulation.comparison.contenders import Contender


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The result of one policy on one market.

    ``availability``, ``full_fraction`` and ``wasted_fraction`` are shares, ``cost`` and ``bound`` fractions
    of the cost on On-Demand alone, ``cost_vs_bound`` their ratio; ``ticks`` (60 s each) are the counted ones;
    ``largest_loss`` is the maximum of instances interrupted at once, ``seconds`` the replay's duration.
    ``standby_cost`` is the additional cost of a bounded warm pool, ``None`` without one, and
    ``cost_with_everything`` includes it.
    """

    policy: str
    default: bool
    target: int
    pools: int
    ticks: int
    availability: float
    full_fraction: float
    minutes_none_ready: float
    largest_loss: int
    cost: float
    cost_with_everything: float
    cost_vs_bound: float
    bound: float
    launches_per_day: float
    interruptions_per_day: float
    wasted_fraction: float
    seconds: float
    standby_cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def play(
    market: SpotMarket, rules: Rules, contender: Contender, target: int, *, keep_spans: bool = False
) -> Ledger:
    """Return the ledger of one contender on a market; ``keep_spans`` also records its spans."""
    pools = placement.named(market.names)
    # The dynamic placer and the fleet have state: both are new for each run.
    maximum = int(rules.ceiling * target) + contender.spares
    zones = tuple(sorted({pool.zone for pool in pools})) if contender.spreads else ()
    group = simulated_group(target, maximum, drain_seconds=rules.drain_seconds, zones=zones)
    fleet = LightFleet(group, contender.policy)
    replay = Replay(market, rules, fleet, contender.shape(pools), target, keep_spans=keep_spans)
    return replay.run()


def compare(
    traces: Sequence[PoolTrace],
    rules: Rules,
    contenders: Iterable[Contender],
    target: int,
    pool_size: int | None = None,
) -> Iterator[PolicyOutcome]:
    """Yield the result of each contender on the same market, in the given order.

    Raises ``ValueError`` for a target below 1 and ``TraceError`` for traces that cannot be replayed.
    """
    if target < 1:
        raise ValueError(f"target must be at least 1, not {target}")
    market = SpotMarket(traces, rules, pool_size)
    lower_bound = bound(market, rules, target)
    for contender in contenders:
        started = time.perf_counter()
        # A contender that never starts from a warm pool has none.
        pooled = rules if contender.warm or not rules.warm_instances else replace(rules, warm_instances=0)
        ledger = play(market, pooled, contender, target)
        seconds = time.perf_counter() - started
        days = ledger.counted * TICK_SECONDS / 86400
        launches = sum(count for kind, count in ledger.counts.items() if kind.startswith("launch-"))
        yield PolicyOutcome(
            policy=contender.name,
            default=contender.default,
            target=ledger.target,
            pools=len(market.names),
            ticks=ledger.counted,
            availability=ledger.availability,
            full_fraction=ledger.full_fraction,
            minutes_none_ready=ledger.minutes_none_ready,
            largest_loss=ledger.largest_loss,
            cost=ledger.cost,
            cost_with_everything=ledger.cost_with_everything,
            cost_vs_bound=ledger.cost / lower_bound,
            bound=lower_bound,
            launches_per_day=launches / days,
            interruptions_per_day=ledger.counts.get("interruption", 0) / days,
            wasted_fraction=ledger.wasted_fraction,
            seconds=seconds,
            standby_cost=None if rules.warm_instances is None else ledger.standby_cost,
        )
