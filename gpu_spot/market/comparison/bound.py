"""What a clairvoyant would pay: the lower bound that a run's cost is compared with.

``U(t)`` = Σ over pools of the least capacity over the last spot cold start is the most spot workers that can
be ready at ``t``. The target is split into slots 1 … N; slot ``l`` may run on spot while ``U ≥ l``. A slot is
spot, on-demand or down in every segment, at the least cost; a boot is paid at its own rate, moving between
spot pools is free. Down-time is limited for all slots together by a Lagrange multiplier; the best dual value
is reported, which no schedule that keeps the availability can undercut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_spot.market.rules import Rules, ticks
from gpu_spot.market.supply.spot import SpotMarket

AVAILABILITY: Final = 0.999
_HALVINGS: Final = 40

Segment = tuple[int, bool]
"""A length in ticks, and whether spot can serve in it."""


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The money of a schedule in on-demand ticks, and how many worker ticks it is down."""

    cost: float
    down: int


def bound(market: SpotMarket, rules: Rules, target: int, availability: float = AVAILABILITY) -> float:
    """Return the least cost ÷ (``target`` on-demand instances all the time) that keeps ``availability``.

    Counted from the end of the warm-up, in which the first boots are free, as they are in a run.
    """
    usable = spot_workers(market, rules)[rules.warm_up_ticks :]
    if not usable:
        raise ValueError(f"{market.ticks} ticks are not longer than the warm-up of {rules.warm_up_ticks}")
    slots = [segments(usable, slot) for slot in range(1, target + 1)]
    allowed = (1.0 - availability) * target * len(usable)

    def dual(price: float) -> tuple[float, int]:
        found = [_cheapest(slot, rules, price) for slot in slots]
        down = sum(schedule.down for schedule in found)
        return sum(schedule.cost for schedule in found) + price * (down - allowed), down

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
    return best / (target * len(usable))


def spot_workers(market: SpotMarket, rules: Rules) -> list[int]:
    """Return ``U`` for every tick: nothing can be ready before one cold start has passed."""
    boot = ticks(rules.spot_cold_start)
    total = [0] * market.ticks
    for pool in range(len(market.names)):
        window: deque[tuple[int, int]] = deque()
        for tick in range(market.ticks):
            capacity = market.capacity(pool, tick)
            while window and window[-1][1] >= capacity:
                window.pop()
            window.append((tick, capacity))
            if window[0][0] < tick - boot:
                window.popleft()
            total[tick] += window[0][1] if tick >= boot else 0
    return total


def segments(usable: Sequence[int], slot: int) -> list[Segment]:
    """Return the runs of ticks in which ``slot`` can, or cannot, run on spot."""
    found: list[Segment] = []
    length, spot = 0, usable[0] >= slot
    for workers in usable:
        if (workers >= slot) == spot:
            length += 1
        else:
            found.append((length, spot))
            length, spot = 1, not spot
    return [*found, (length, spot)]


def _cheapest(slot: Sequence[Segment], rules: Rules, price: float) -> _Schedule:
    """Return the schedule of one slot that costs least with down ticks at ``price``."""
    spot_boot = ticks(rules.spot_cold_start) * rules.spot_price
    on_demand_boot = float(ticks(rules.on_demand_cold_start))
    never = (float("inf"), 0.0, 0)
    # By state: (cost with the price of down ticks, cost, down ticks). The warm-up has booted either.
    spot, on_demand, down = (0.0, 0.0, 0), (0.0, 0.0, 0), (0.0, 0.0, 0)
    for length, can_spot in slot:
        paid = length * rules.spot_price
        from_other = min(on_demand, down)
        next_spot = (
            min(_plus(spot, paid, 0, price), _plus(from_other, paid + spot_boot, 0, price))
            if can_spot
            else never
        )
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
