"""Buy on-demand where a shortage would cost more: one number, ``shortage_cost``, weighs the two."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from lambdas.core.history import OFFSET, SCALE
from lambdas.core.model import Instance, Market
from lambdas.core.plan import Plan
from lambdas.core.situation import Situation

UNKNOWN_BOOT: Final = 300.0
"""The boot time in seconds to plan with before any was seen: on the safe side, everything starts at once."""
SPOT_PRICE: Final = 0.3
"""Spot as a fraction of on-demand, a typical one: it only decides between twins and a scout."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place of the target that stands empty from ``missing`` to ``filled`` (``inf``: not in sight)."""

    missing: float
    filled: float


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Weigh on-demand money against the shortage that it avoids.

    ``shortage_cost`` is what a worker-minute of shortage is worth, in on-demand minutes. From it follow:

    - *Just in time.* A doomed instance works until its drain; its on-demand successor is started a learned
      boot earlier, not at the notice.
    - *No cover for what is about to end.* Where the spot successor boots already, on-demand is started only
      if the time that it wins is worth its own boot.
    - *Twins.* On-demand stays beside its spot successor in a pool so young that the next unannounced loss
      would cost more than the twin.
    - *Scouts.* Where that would take long, one instance tries a pool that has just come back, not all.
    """

    shortage_cost: float = 100.0
    name: ClassVar[str] = "expected-cost"

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a cost below zero."""
        if not (math.isfinite(self.shortage_cost) and self.shortage_cost >= 0):
            raise ValueError(f"shortageCost is {self.shortage_cost}, a number ≥ 0 is needed")

    def plan(self, situation: Situation) -> Plan:
        """Return what to hold now."""
        now, target = situation.now, situation.group.target
        boot = situation.memory.boot_seconds(Market.ON_DEMAND, UNKNOWN_BOOT)
        lasting = situation.lasting(situation.primary)
        young = [
            i
            for i in situation.primary
            if not situation.is_doomed(i) and self._trusted_at(situation, i) > now
        ]
        primary = self._primary(situation, bool(young))
        waits = self._room(situation, primary)
        wanted, moments = 0, [self._trusted_at(situation, i) for i in young]
        for place in self._places(situation, len(lasting), primary):
            start_by = place.missing - boot if waits else now
            if not self._worth(place, boot, situation):
                moments.append(place.filled)  # what is overdue then does not count any longer
            elif start_by <= now:
                wanted += 1
                moments.append(place.filled)
            else:
                moments.append(start_by)
        # A twin stays, it is not bought: on-demand stood in while its spot instance booted.
        twins = min(target, wanted + sum(i in young for i in lasting), situation.committed_fallback)
        return Plan(
            on_demand=max(wanted, twins),
            reason=(
                f"target {target}, {len(lasting)} primary ready and staying, {len(young)} in young pools, "
                f"{sum(situation.is_doomed(i) for i in situation.primary)} doomed"
            ),
            primary=primary,
            wake_at=min((t for t in moments if now < t < math.inf), default=None),
        )

    def _places(self, situation: Situation, lasting: int, primary: int) -> Iterator[Place]:
        """Yield the places that are or will be empty, those missing longest first."""
        now, target = situation.now, situation.group.target
        ends = sorted(
            drain_at
            for i in situation.primary
            if situation.is_ready(i) and (drain_at := situation.drain_at(i)) is not None
        )
        empty = max(0, target - lasting - len(ends))
        kept = max(0, target - lasting - empty)  # doomed instances that the target still needs
        missing = [now] * empty + ends[len(ends) - kept :]
        arrivals = sorted(self._arrivals(situation))
        if not situation.memory.history.refused:
            # What the group lacks it launches at once, unless spot is short.
            staying = sum(not situation.is_doomed(i) for i in situation.primary)
            spot_boot = situation.memory.boot_seconds(Market.SPOT, UNKNOWN_BOOT)
            arrivals += [now + spot_boot] * max(0, primary - staying)
        arrivals += [math.inf] * (len(missing) - len(arrivals))
        for start, filled in zip(missing, arrivals, strict=False):
            yield Place(start, filled)

    def _arrivals(self, situation: Situation) -> Iterator[float]:
        """Yield when each primary instance that boots is due, of those that are not overdue."""
        for instance in situation.primary:
            if instance.ready_since is None and not situation.is_doomed(instance):
                boot = situation.memory.boot_seconds(instance.market, UNKNOWN_BOOT)
                due = max(instance.launched_at + boot, self._trusted_at(situation, instance))
                if due > situation.now:
                    yield due

    def _worth(self, place: Place, boot: float, situation: Situation) -> bool:
        """Say whether on-demand for this place is worth its money; the same answer as long as it boots."""
        if place.filled == math.inf:
            return self.shortage_cost > 1
        spot_boot = situation.memory.boot_seconds(Market.SPOT, UNKNOWN_BOOT)
        launched = place.filled - spot_boot
        missing = max(launched, place.missing if place.missing > situation.now else launched)
        start = max(launched, missing - boot)
        lost = 1 - math.exp(-SCALE * situation.memory.history.factor() * spot_boot / (OFFSET + spot_boot))
        won = max(0.0, place.filled - max(missing, start + boot)) + lost * boot
        return self.shortage_cost * won > place.filled - start

    def _trusted_at(self, situation: Situation, instance: Instance) -> float:
        """Return from when an unannounced loss of the instance costs less than a twin beside it."""
        if instance.market is Market.ON_DEMAND:
            return -math.inf
        record = situation.memory.history.record(instance.pool)
        since = situation.now if record.since is None else record.since
        return since - record.start_age + self._young_until(situation, instance.pool)

    def _young_until(self, situation: Situation, pool: object = None) -> float:
        """Return the age in seconds at which a pool is old enough to rely on."""
        history = situation.memory.history
        boot = situation.memory.boot_seconds(Market.ON_DEMAND, UNKNOWN_BOOT)
        return SCALE * history.factor(pool) * history.unannounced_share * boot * self.shortage_cost - OFFSET

    def _primary(self, situation: Situation, young: bool) -> int:
        """Return the primary group's capacity: the target, or one scout more where a pool is to be tried."""
        target = situation.group.target
        spot_boot = situation.memory.boot_seconds(Market.SPOT, UNKNOWN_BOOT)
        scouting = self._young_until(situation) > spot_boot / SPOT_PRICE
        if not scouting or not (young or situation.memory.history.refused):
            return target
        staying = sum(not situation.is_doomed(i) for i in situation.primary)
        return min(target, staying + (not young))

    def _room(self, situation: Situation, primary: int) -> bool:
        """Say whether the ceiling still leaves room for on-demand after the group has replaced the doomed."""
        doomed = sum(situation.is_doomed(i) for i in situation.primary)
        staying = len(situation.primary) - doomed
        return max(primary, staying) + doomed + situation.group.target - staying <= situation.group.maximum
