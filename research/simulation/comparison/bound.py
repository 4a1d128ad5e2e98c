"""The clairvoyant lower bound of the cost, with which a run's cost is compared.

``U(t)``, the maximum number of ready Spot workers at ``t``, is the sum over the pools of the minimum capacity
during the last Spot cold start. The target is split into slots 1 … N; slot ``l`` may run on Spot while
``U ≥ l``, at the price of the ``l``-th cheapest worker. In every segment a slot is Spot, On-Demand or down,
at minimum cost; a boot is paid at its own rate, a move between Spot pools is free. A Lagrange multiplier
limits the down-time of all slots together. The result is the best dual value: no schedule with the required
availability costs less.
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
"""A length in ticks and the Spot price in it; ``None`` if no Spot capacity is available."""


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The cost of a schedule in On-Demand ticks, and its down-time in worker ticks."""

    cost: float
    down: int


def bound(market: SpotMarket, rules: Rules, target: int, availability: float = AVAILABILITY) -> float:
    """Return the minimum cost at ``availability``, as a fraction of ``target`` On-Demand instances.

    The warm-up is not counted, and boots in it are free, as in a run.
    """
    units = spot_units(market, rules, target)[rules.warm_up_ticks :]
    if not units:
        raise ValueError(f"{market.ticks} ticks are not longer than the warm-up of {rules.warm_up_ticks}")
    # Slots that depend on the same pool have equal segments.
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
    """Return for every tick the ascending prices of the Spot workers that can be ready, at most ``most``.

    No worker can be ready before one cold start has passed.
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
    """Return for every tick the minimum capacity of a pool over this and the last ``boot`` ticks."""
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
    """Return the segments in which ``slot`` can run on Spot at one price, or cannot run on Spot."""
    prices = (ready[slot - 1] if len(ready) >= slot else None for ready in units)
    return tuple((sum(1 for _ in run), price) for price, run in groupby(prices))


def _cheapest(slot: Sequence[Segment], rules: Rules, price: float) -> _Schedule:
    """Return the cheapest schedule of one slot with down ticks at ``price``."""
    spot_boot = ticks(rules.spot_cold_start)
    on_demand_boot = float(ticks(rules.on_demand_cold_start))
    never = (float("inf"), 0.0, 0)
    # By state: (cost with the price of down ticks, cost, down ticks). After the warm-up both are booted.
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
