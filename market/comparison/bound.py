"""What a clairvoyant would pay: the lower bound that a run's cost is compared with.

``U(t)`` = Σ over pools of the least capacity over the last spot cold start is the most spot workers that can
be ready at ``t``. The target is split into slots 1 … N; slot ``l`` may run on spot while ``U ≥ l``, at the
price of the ``l``-th cheapest. A slot is spot, on-demand or down in every segment, at the least cost; a boot
is paid at its own rate, moving between spot pools is free. Down-time is limited for all slots together by a
Lagrange multiplier; the best dual value is reported, which no schedule that keeps the availability can
undercut.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from market.rules import Rules, ticks
from market.supply.spot import SpotMarket

AVAILABILITY: Final = 0.999
_HALVINGS: Final = 40

Segment = tuple[int, float | None]
"""A length in ticks, and the price of spot in it, ``None`` where spot cannot serve."""


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The money of a schedule in on-demand ticks, and how many worker ticks it is down."""

    cost: float
    down: int


def bound(market: SpotMarket, rules: Rules, target: int, availability: float = AVAILABILITY) -> float:
    """Return the least cost ÷ (``target`` on-demand instances all the time) that keeps ``availability``.

    Counted from the end of the warm-up, in which the first boots are free, as they are in a run.
    """
    units = spot_units(market, rules, target)[rules.warm_up_ticks :]
    if not units:
        raise ValueError(f"{market.ticks} ticks are not longer than the warm-up of {rules.warm_up_ticks}")
    # Slots that one pool takes and gives together have equal segments.
    slots = Counter(segments(units, slot) for slot in range(1, target + 1))
    allowed = (1.0 - availability) * target * len(units)

    def dual(price: float) -> tuple[float, int]:
        slot_costs = [(_cheapest(slot, rules, price), times) for slot, times in slots.items()]
        down = sum(schedule.down * times for schedule, times in slot_costs)
        return sum(schedule.cost * times for schedule, times in slot_costs) + price * (down - allowed), down

    # The dual is concave in the price of a down tick; its slope is down − allowed.
    low, high = 0.0, 1.0
    while dual(high)[1] > allowed:
        low, high = high, high * 2
    best = dual(high)[0]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        value, down = dual(middle)
        best = max(best, value)
        if down > allowed:
            low = middle
        else:
            high = middle
    return best / (target * len(units))


def spot_units(market: SpotMarket, rules: Rules, max_units: int) -> list[tuple[float, ...]]:
    """Return for every tick the prices of the spot workers that can be ready, ascending, at most ``most``.

    Nothing can be ready before one cold start has passed.
    """
    ready = [_min_units(market, pool, ticks(rules.spot_cold_start)) for pool in range(len(market.names))]
    prices = [[market.price(pool, tick) for tick in range(market.ticks)] for pool in range(len(market.names))]
    cache: dict[Any, tuple[float, ...]] = {}
    held_ticks = []
    for counts, costs in zip(zip(*ready, strict=True), zip(*prices, strict=True), strict=True):
        if (counts, costs) not in cache:
            units = (cost for cost, count in sorted(zip(costs, counts, strict=True)) for _ in range(count))
            cache[counts, costs] = tuple(islice(units, max_units))
        held_ticks.append(cache[counts, costs])
    return held_ticks


def _min_units(market: SpotMarket, pool: int, boot: int) -> list[int]:
    """Return for every tick the least capacity of a pool over the last ``boot`` ticks and this one."""
    window: deque[tuple[int, int]] = deque()
    minima = []
    for tick in range(market.ticks):
        capacity = market.capacity(pool, tick)
        while window and window[-1][1] >= capacity:
            window.pop()
        window.append((tick, capacity))
        if window[0][0] < tick - boot:
            window.popleft()
        minima.append(window[0][1] if tick >= boot else 0)
    return minima


def segments(units: Iterable[tuple[float, ...]], slot: int) -> tuple[Segment, ...]:
    """Return the runs of ticks in which ``slot`` can run on spot at one price, or cannot."""
    prices = (ready[slot - 1] if len(ready) >= slot else None for ready in units)
    return tuple((sum(1 for _ in run), price) for price, run in groupby(prices))


def _cheapest(slot: Sequence[Segment], rules: Rules, price: float) -> _Schedule:
    """Return the schedule of one slot that costs least with down ticks at ``price``."""
    spot_boot = ticks(rules.spot_cold_start)
    on_demand_boot = float(ticks(rules.on_demand_cold_start))
    never = (float("inf"), 0.0, 0)
    # By state: (cost with the price of down ticks, cost, down ticks). The warm-up has booted either.
    spot, on_demand, down = (0.0, 0.0, 0), (0.0, 0.0, 0), (0.0, 0.0, 0)
    for length, spot_price in slot:
        next_spot = never
        if spot_price is not None:
            paid = length * spot_price
            with_boot = _plus(min(on_demand, down), paid + spot_boot * spot_price, 0, price)
            next_spot = min(_plus(spot, paid, 0, price), with_boot)
        from_other = min(spot, down)
        next_on_demand = min(
            _plus(on_demand, length, 0, price), _plus(from_other, length + on_demand_boot, 0, price)
        )
        down = _plus(min(spot, on_demand, down), 0.0, length, price)
        spot, on_demand = next_spot, next_on_demand
    _, cost, lost = min(spot, on_demand, down)
    return _Schedule(cost, lost)


def _plus(state: tuple[float, float, int], cost: float, down: int, price: float) -> tuple[float, float, int]:
    return state[0] + cost + price * down, state[1] + cost, state[2] + down
