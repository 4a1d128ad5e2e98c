"""Capacity, drops, prices and recommendations of the Spot market over time, independent of its users."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from market.rules import NOTICE_SECONDS, TICK_SECONDS, Rules, ticks
from market.supply.trace import PoolTrace, TraceError, check


@dataclass(frozen=True, slots=True)
class Drop:
    """A pool's capacity falls to ``capacity`` at ``tick``; its notice arrives at ``announced``."""

    pool: int
    tick: int
    capacity: int
    announced: int | None


class SpotMarket:
    """The capacity of every pool over time: traces × pool size, with announced and unannounced drops.

    A trace without prices has ``rules.spot_price``.

    Random values are drawn by seed, pool and tick: they do not depend on the instances in use.
    """

    def __init__(self, traces: Sequence[PoolTrace], rules: Rules, pool_size: int | None = None) -> None:
        """Sample the traces at the tick; the shortest cuts the rest. Raise ``TraceError`` if there are none.

        ``pool_size`` multiplies every sample; by default 8 where all samples are 0 or 1, else 1.
        """
        check(traces)
        if rules.on_demand_price is not None and all(trace.prices is None for trace in traces):
            raise TraceError(f"trace {traces[0].name} has no prices, they are needed to replay real prices")
        self.names = tuple(_type(trace.name, number) for trace in traces for number in range(rules.types))
        self.pool_size = pool_size if pool_size is not None else default_pool_size(traces)
        if self.pool_size < 1:
            raise TraceError(f"pool size must be at least 1, not {self.pool_size}")
        self.ticks = int(min(trace.seconds for trace in traces) // TICK_SECONDS)
        if self.ticks < 1:
            raise TraceError("the shortest trace is shorter than one tick of 60 s")
        self._changes = tuple(
            self._compile(trace, number, pool * rules.types + number, rules)
            for pool, trace in enumerate(traces)
            for number in range(rules.types)
        )
        drops = [drop for pool in range(len(self.names)) for drop in self._drops(pool, rules)]
        self._announcements: dict[int, list[Drop]] = {}
        for drop in drops:
            if drop.announced is not None:
                self._announcements.setdefault(drop.announced, []).append(drop)
        self._recommendations: dict[int, list[int]] = {}
        for tick, pool in self._alarms(drops, rules):
            self._recommendations.setdefault(tick, []).append(pool)
        self._prices = [_prices(trace, rules, self.ticks) for trace in traces for _ in range(rules.types)]
        self._dry = self._dry_episodes(rules)
        moments = {tick for at, _ in (*self._changes, *self._prices) for tick in at}
        moments.update(tick for episode in self._dry for tick in episode)
        self._moments = sorted(moments | set(self._announcements) | set(self._recommendations))

    def capacity(self, pool: int, tick: int) -> int:
        """Return the pool's capacity in instances at the tick."""
        at, capacities = self._changes[pool]
        return capacities[bisect_right(at, tick) - 1]

    def announcements(self, tick: int) -> Sequence[Drop]:
        """Return the drops announced at the tick."""
        return self._announcements.get(tick, ())

    def recommendations(self, tick: int) -> Sequence[int]:
        """Return the pools with a rebalance recommendation at the tick."""
        return self._recommendations.get(tick, ())

    def price(self, pool: int, tick: int) -> float:
        """Return the Spot price of the pool at the tick, as a fraction of On-Demand."""
        at, prices = self._prices[pool]
        return prices[bisect_right(at, tick) - 1]

    def on_demand_is_dry(self, tick: int) -> bool:
        """Return whether On-Demand, like Spot, has no capacity at the tick."""
        index = bisect_right(self._dry, (tick, self.ticks)) - 1
        return index >= 0 and tick < self._dry[index][1]

    def quotes(self, tick: int) -> Sequence[float]:
        """Return the prices of all pools if one of them changes at this tick, else nothing."""
        if not any(at[bisect_right(at, tick) - 1] == tick for at, _ in self._prices):
            return ()
        return [self.price(pool, tick) for pool in range(len(self.names))]

    def next_change(self, tick: int) -> int:
        """Return the first later tick at which capacity, price or a warning changes, else the end."""
        index = bisect_right(self._moments, tick)
        return self._moments[index] if index < len(self._moments) else self.ticks

    def _compile(self, trace: PoolTrace, number: int, pool: int, rules: Rules) -> tuple[list[int], list[int]]:
        """Return the ticks at which the capacity of one type changes, and the capacities from then on."""
        at: list[int] = []
        capacities: list[int] = []
        for tick in range(self.ticks):
            whole = trace.samples[int(tick * TICK_SECONDS // trace.gap_seconds)] * self.pool_size
            capacity = (whole + number) // rules.types
            if not capacities or capacities[-1] != capacity:
                at.append(tick)
                capacities.append(capacity)
        if rules.types > 1:
            at, capacities = _late(at, capacities, pool, rules)
        if rules.drop_spread > 0:
            at, capacities = _one_by_one(at, capacities, pool, trace.gap_seconds, rules)
        return at, capacities

    def _drops(self, pool: int, rules: Rules) -> list[Drop]:
        at, capacities = self._changes[pool]
        drops: list[Drop] = []
        for tick, before, after in zip(at[1:], capacities, capacities[1:], strict=False):
            if after < before:
                chance = draw(rules.seed, "notice", pool, tick)
                has_notice = chance.random() < rules.notice
                lead = round(chance.uniform(rules.shortest_notice_seconds, NOTICE_SECONDS) / TICK_SECONDS)
                drops.append(
                    Drop(pool, tick, after, tick - lead if has_notice and 0 < lead <= tick else None)
                )
        return drops

    def _dry_episodes(self, rules: Rules) -> list[tuple[int, int]]:
        """Return the intervals with neither Spot nor On-Demand capacity."""
        if rules.on_demand_episodes == 0:
            return []
        moments = sorted({tick for at, _ in self._changes for tick in at})
        empty = [all(self.capacity(pool, tick) == 0 for pool in range(len(self.names))) for tick in moments]
        episodes: list[tuple[int, int]] = []
        for tick, end, dry in zip(moments, [*moments[1:], self.ticks], empty, strict=True):
            if dry and episodes and episodes[-1][1] == tick:
                episodes[-1] = (episodes[-1][0], end)
            elif dry:
                episodes.append((tick, end))
        return [
            e for e in episodes if draw(rules.seed, "episode", 0, e[0]).random() < rules.on_demand_episodes
        ]

    def _alarms(self, drops: Sequence[Drop], rules: Rules) -> Iterator[tuple[int, int]]:
        """Yield tick and pool of each recommendation: those ahead of drops, and false alarms."""
        right: Counter[int] = Counter()
        for drop in drops:
            chance = draw(rules.seed, "recommendation", drop.pool, drop.tick)
            early, share = chance.random() < rules.early, chance.random()
            lead = rules.shortest_lead_seconds ** (1 - share) * rules.longest_lead_seconds**share
            if early and ticks(lead) <= drop.tick:
                right[drop.pool] += 1
                yield drop.tick - ticks(lead), drop.pool
        for pool, count in right.items():
            up = [tick for tick in range(self.ticks) if self.capacity(pool, tick)]
            false = draw(rules.seed, "false alarms", pool, 0)
            yield from ((false.choice(up), pool) for _ in range(round(count * rules.false_alarms)))


def _late(at: list[int], capacities: list[int], pool: int, rules: Rules) -> tuple[list[int], list[int]]:
    """Return the changes, each delayed by a lag, in unchanged order."""
    moved = [0]
    for tick in at[1:]:
        lag = draw(rules.seed, "lag", pool, tick).uniform(0, rules.type_lag_seconds)
        moved.append(max(moved[-1] + 1, tick + ticks(lag)))
    return moved, capacities


def _one_by_one(
    at: list[int], capacities: list[int], pool: int, gap: float, rules: Rules
) -> tuple[list[int], list[int]]:
    """Return the changes with every drop spread over its sampling gap, at most until the next change."""
    spread_at, spread = at[:1], capacities[:1]
    longest = max(1, int(gap * rules.drop_spread // TICK_SECONDS))
    for index in range(1, len(at)):
        tick, capacity = at[index], capacities[index]
        lost = spread[-1] - capacity
        end = min([tick + longest, *at[index + 1 : index + 2]])
        if lost > 1:
            chance = draw(rules.seed, "spread", pool, tick)
            losses = Counter(chance.randrange(tick, end) for _ in range(lost))
            for moment in sorted(losses):
                spread_at.append(moment)
                spread.append(spread[-1] - losses[moment])
        else:
            spread_at.append(tick)
            spread.append(capacity)
    return spread_at, spread


def _type(name: str, number: int) -> str:
    return f"{name}.{number + 1}" if number else name


def _prices(trace: PoolTrace, rules: Rules, length: int) -> tuple[list[int], list[float]]:
    if rules.on_demand_price is None or trace.prices is None:
        return [0], [rules.spot_price]
    at: list[int] = []
    prices: list[float] = []
    for tick in range(length):
        price = trace.prices[int(tick * TICK_SECONDS // trace.gap_seconds)] / rules.on_demand_price
        if not prices or prices[-1] != price:
            at.append(tick)
            prices.append(price)
    return at, prices


def default_pool_size(traces: Sequence[PoolTrace]) -> int:
    """Return 8 if all samples are 0 or 1 (a pool holds a small fleet), else 1."""
    return 8 if all(max(trace.samples) <= 1 for trace in traces) else 1


def draw(seed: int, purpose: str, pool: int, tick: int) -> random.Random:
    """Return the random generator of one event, which depends on the event alone."""
    return random.Random(f"{seed}/{purpose}/{pool}/{tick}")
