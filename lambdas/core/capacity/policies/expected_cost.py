"""Buy on-demand where a shortage would cost more: one number, ``shortage_cost``, weighs the two."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import ClassVar, Final

from contracts.group import policies
from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.history import OFFSET, PATIENCE, SCALE, UNKNOWN_AGE
from lambdas.core.capacity.plan import Plan
from lambdas.core.capacity.policies.risk import Risk
from lambdas.core.model import Instance, Market, slots

COVER_PRICE: Final = 1.5
"""What a minute of cover costs, in on-demand minutes: it boots before, stands until the next look after, and
is no help against what comes meanwhile. Measured in replays of the public traces: reckoned at 1 it cost 150
to 190 on-demand minutes where a hundred were asked."""
_LEAST_WAIT: Final = 60.0
"""So many seconds lie between two looks that only the age of pools asks for."""


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Weigh on-demand money against the shortage that it avoids.

    ``shortage_cost`` is what a worker-minute of shortage is worth, in on-demand minutes. From it follow:

    - *Successors.* On-demand stands in for what is missing or doomed, from the notice on, unless spot
      that boots will be there so soon that the time won is not worth what the wait for it costs.
    - *Cover.* More is held for as long as what it spares is worth more than it costs: beside pools that are
      young, beside what a failing pool has left, beside many pools of which each fails for itself.
    - *Spares.* What is worth it in the long run is held as spot, where it can be had in another pool.
    - *Scouts.* Where pools need cover until long after they have come back, one instance tries them, not
      all, if what the others save then is worth its price.

    Where spot saves nothing, none is bought.
    """

    shortage_cost: float = policies.KNOBS[policies.EXPECTED_COST][policies.SHORTAGE_COST].default
    name: ClassVar[str] = policies.EXPECTED_COST

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a cost below zero."""
        if not (math.isfinite(self.shortage_cost) and self.shortage_cost >= 0):
            raise ValueError(f"shortageCost is {self.shortage_cost}, a number ≥ 0 is needed")

    def plan(self, situation: Situation) -> Plan:
        """Return what to hold now."""
        now, target, lasting = situation.now, situation.group.target, situation.lasting_primary
        risk = Risk.of(situation)
        taken = situation.memory.doomed
        staying = [i for i in situation.primary if i.id not in taken]
        held = slots(staying)
        primary, moments = self._primary(situation, risk, held)
        arrivals = sorted(self._arrivals(situation, staying, held - primary))
        cover = 0 if situation.group.break_before_make else self._worth(risk.missing, target)
        if cover:
            calm = risk.calm_at(self.shortage_cost * risk.missing(cover) / COVER_PRICE, now)
            moments.append(max(calm, now + _LEAST_WAIT))
        missing = _missing(situation, lasting)
        wanted = self._successors(situation, missing, arrivals, primary - held)
        wanted += cover - max(0, lasting - target)
        doomed = slots(situation.primary) - held
        return Plan(
            on_demand=min(target, max(0, wanted)),
            reason=f"target {target}, {lasting} primary ready and staying, {doomed} doomed, {cover} as cover",
            primary=primary,
            wake_at=min((t for t in chain(moments, arrivals) if now < t < math.inf), default=None),
        )

    def _worth(self, missing: Callable[[int], float], most: int) -> int:
        """Return how many standing by are worth their price, each with what it alone would spare."""
        return bisect_left(
            range(1, most + 1), True, key=lambda n: self.shortage_cost * missing(n) <= COVER_PRICE
        )

    def _successors(
        self, situation: Situation, missing: Sequence[float], arrivals: Sequence[float], lacking: int
    ) -> int:
        """Return the on-demand slots for places that stand empty, or will.

        The primary group is to launch ``lacking`` slots more than it has.
        """
        if self.shortage_cost <= 1:
            return 0
        now, memory = situation.now, situation.memory
        boot, spot_boot = memory.boot_seconds(Market.ON_DEMAND), memory.boot_seconds(Market.SPOT)
        seconds_won = []
        for since, due in zip(missing, arrivals, strict=False):
            # Reckoned from its launch, so that the answer stays as long as it boots.
            launched = due - spot_boot
            seconds_won.append(due - max(launched + boot, since if since > now else launched))
        # What is not launched yet may be refused, say one in two, and for so long nobody would know.
        seconds_won += [PATIENCE / 2] * (0 if memory.history.refused else lacking)
        seconds_won += [math.inf] * (len(missing) - len(seconds_won))
        return sum(self.shortage_cost * won > spot_boot for won in seconds_won[: len(missing)])

    def _arrivals(self, situation: Situation, staying: Sequence[Instance], surplus: int) -> Iterator[float]:
        """Yield when each primary slot is due that boots."""
        now, memory = situation.now, situation.memory
        # Who is about to be let go arrives for nobody, and who is overdue may never.
        going = {i.id for i in situation.first_to_go(staying, surplus)}
        for instance in staying:
            if not situation.is_up(instance) and instance.id not in going:
                due = instance.launched_at + memory.boot_seconds(instance.market)
                if due > now:
                    yield from repeat(due, instance.slots)

    def _primary(self, situation: Situation, risk: Risk, staying: int) -> tuple[int, list[float]]:
        """Return the primary group's capacity, and when pools that are tried have lasted long enough.

        ``staying`` is how many slots it has without a notice.
        """
        group, now, boot_seconds = situation.group, situation.now, situation.memory.boot_seconds
        price, boot = situation.spot_price, boot_seconds(Market.SPOT)
        losses = SCALE / (OFFSET + UNKNOWN_AGE)
        if self.shortage_cost > 1 and 1 - price <= losses * (boot_seconds(Market.ON_DEMAND) + price * boot):
            return min(group.target, staying), []
        # At this age, less the offset, a pool's cover costs what it spares: hazard × outage × worth = price.
        trusted = SCALE * risk.outage * self.shortage_cost / COVER_PRICE
        if trusted * risk.factor - OFFSET <= boot / max(price, 0.01):
            largest = max((pool.slots for pool in risk.pools), default=0)
            most = max(0, group.maximum - group.target - largest)
            spares = 0 if group.break_before_make else self._worth(risk.missing_elsewhere, most)
            return group.target + spares, []
        # Of pools lost at 1 / (offset + age) one in trusted ÷ offset lasts, for as long as it is old by then:
        # what all save in one that lasts is offset × (1 - price), a scout pays offset × log until then.
        if (1 - price) * group.target <= price * math.log(trusted * risk.factor / OFFSET):
            return min(group.target, staying), []
        waits = [trusted * pool.factor - OFFSET - pool.age for pool in risk.pools]
        young = [now + wait for wait in waits if wait > 0]
        if not young and not situation.memory.history.refused:
            return group.target, []
        return min(group.target, staying + (not young)), young


def _missing(situation: Situation, lasting: int) -> list[float]:
    """Return from when each place of the target stands empty that no lasting instance fills."""
    doomed, drain = situation.memory.doomed, situation.group.drain_seconds
    ends = sorted(
        at - drain
        for i in situation.primary
        if (at := doomed.get(i.id)) is not None and situation.is_ready(i)
        for _ in range(i.slots)
    )
    empty = max(0, situation.group.target - lasting)
    return [situation.now] * max(0, empty - len(ends)) + ends[max(0, len(ends) - empty) :]
