"""Buy on-demand where a shortage would cost more: one number, ``shortage_cost``, weighs the two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from lambdas.core.history import OFFSET, SCALE
from lambdas.core.model import Instance, Market, Pool, slots
from lambdas.core.plan import Plan
from lambdas.core.situation import Situation

UNKNOWN_BOOT: Final = 300.0
"""The boot time in seconds to plan with before any was seen: on the safe side, everything starts at once."""
SPOT_PRICE: Final = 0.3
"""Spot as a fraction of on-demand, a typical one: it only decides between twins and a scout."""


@dataclass(frozen=True, slots=True)
class Place:
    """A slot of the target that stands empty from ``missing`` to ``filled`` (``inf``: not in sight)."""

    missing: float
    filled: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the policy reckons with: learned boots in seconds, and how long spot is not to be relied on.

    ``factor`` and ``young_until`` (an age in seconds) are those of a pool not yet seen; ``staying`` are the
    instances without a notice; ``trusted_at`` says by instance from when its unannounced loss costs less than
    a twin.
    """

    boot: float
    spot_boot: float
    factor: float
    young_until: float
    staying: Sequence[Instance]
    trusted_at: Mapping[str, float]


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
        outlook = self._outlook(situation)
        lasting = situation.lasting(situation.primary)
        count, staying = slots(lasting), slots(outlook.staying)
        young = {i.id for i in outlook.staying if outlook.trusted_at[i.id] > now}
        primary = self._primary(situation, outlook, bool(young))
        waits = self._room(situation, outlook, primary)
        wanted, moments = 0, [outlook.trusted_at[i] for i in young]
        for place in self._places(situation, outlook, count, primary):
            start_by = place.missing - outlook.boot if waits else now
            if not self._worth(place, outlook, now):
                moments.append(place.filled)  # what is overdue then does not count any longer
            elif start_by <= now:
                wanted += 1
                moments.append(place.filled)
            else:
                moments.append(start_by)
        # A twin stays, it is not bought: on-demand stood in while its spot instance booted.
        untrusted = slots(i for i in lasting if i.id in young) if young else 0
        twins = min(target, wanted + untrusted, situation.committed_fallback)
        return Plan(
            on_demand=max(wanted, twins),
            reason=(
                f"target {target}, {count} primary ready and staying, {len(young)} in young pools, "
                f"{slots(situation.primary) - staying} doomed"
            ),
            primary=primary,
            wake_at=min((t for t in moments if now < t < math.inf), default=None),
        )

    def _outlook(self, situation: Situation) -> Outlook:
        memory, history = situation.memory, situation.memory.history
        boot = memory.boot_seconds(Market.ON_DEMAND, UNKNOWN_BOOT)
        # At this age of a typical pool an unannounced loss costs less than a twin: hazard × worth = 1.
        scale = SCALE * history.unannounced_share * boot * self.shortage_cost
        staying = [i for i in situation.primary if not situation.is_doomed(i)]
        born: dict[Pool, float] = {}
        for pool in {i.pool for i in staying if i.market is Market.SPOT}:
            record = history.record(pool)
            since = situation.now if record.since is None else record.since
            born[pool] = since - record.start_age + scale * history.factor(pool) - OFFSET
        return Outlook(
            boot=boot,
            spot_boot=memory.boot_seconds(Market.SPOT, UNKNOWN_BOOT),
            factor=(factor := history.factor()),
            young_until=scale * factor - OFFSET,
            staying=staying,
            trusted_at={i.id: born[i.pool] if i.market is Market.SPOT else -math.inf for i in staying},
        )

    def _places(self, situation: Situation, outlook: Outlook, lasting: int, primary: int) -> Iterator[Place]:
        """Yield the places that are or will be empty, those missing longest first."""
        now, target = situation.now, situation.group.target
        ends = sorted(
            drain_at
            for i in situation.primary
            if situation.is_ready(i) and (drain_at := situation.drain_at(i)) is not None
            for _ in range(i.slots)
        )
        empty = max(0, target - lasting - len(ends))
        kept = max(0, target - lasting - empty)  # doomed instances that the target still needs
        missing = [now] * empty + ends[len(ends) - kept :]
        arrivals = sorted(self._arrivals(situation, outlook))
        if not situation.memory.history.refused:
            # What the group lacks it launches at once, unless spot is short.
            arrivals += [now + outlook.spot_boot] * max(0, primary - slots(outlook.staying))
        arrivals += [math.inf] * (len(missing) - len(arrivals))
        for start, filled in zip(missing, arrivals, strict=False):
            yield Place(start, filled)

    def _arrivals(self, situation: Situation, outlook: Outlook) -> Iterator[float]:
        """Yield when each primary slot that boots is due, of those that are not overdue."""
        # Who is about to be let go arrives for nobody.
        surplus = slots(outlook.staying) - situation.group.target
        going = {i.id for i in situation.first_to_go(outlook.staying, surplus)}
        for instance in outlook.staying:
            if instance.id not in going and not situation.is_up(instance):
                boot = situation.memory.boot_seconds(instance.market, UNKNOWN_BOOT)
                due = max(instance.launched_at + boot, outlook.trusted_at[instance.id])
                if due > situation.now:
                    yield from [due] * instance.slots

    def _worth(self, place: Place, outlook: Outlook, now: float) -> bool:
        """Say whether on-demand for this place is worth its money; the same answer as long as it boots."""
        if place.filled == math.inf:
            return self.shortage_cost > 1
        launched = place.filled - outlook.spot_boot
        missing = max(launched, place.missing if place.missing > now else launched)
        start = max(launched, missing - outlook.boot)
        hazard = SCALE * outlook.factor / (OFFSET + outlook.spot_boot)
        lost = 1 - math.exp(-hazard * outlook.spot_boot)
        won = max(0.0, place.filled - max(missing, start + outlook.boot)) + lost * outlook.boot
        return self.shortage_cost * won > place.filled - start

    def _primary(self, situation: Situation, outlook: Outlook, young: bool) -> int:
        """Return the primary group's capacity: the target, or one scout more where a pool is to be tried."""
        target = situation.group.target
        scouting = outlook.young_until > outlook.spot_boot / SPOT_PRICE
        if not scouting or not (young or situation.memory.history.refused):
            return target
        return min(target, slots(outlook.staying) + (not young))

    def _room(self, situation: Situation, outlook: Outlook, primary: int) -> bool:
        """Say whether the ceiling still leaves room for on-demand after the group has replaced the doomed."""
        staying = slots(outlook.staying)
        doomed = slots(situation.primary) - staying
        return max(primary, staying) + doomed + situation.group.target - staying <= situation.group.maximum
