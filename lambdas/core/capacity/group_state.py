"""An observation seen through the memory: who works, who is doomed, who is missing. Policies read this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.replacement_requests import NOT_SERVING
from lambdas.core.capacity.memory import LONGEST_BOOT, Memory
from lambdas.core.capacity.replacements import followed
from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.model import Group, Instance, Market, Observation, Side, is_one_cause, slots

UNKNOWN_SPOT_PRICE: Final = 0.3
"""What spot costs as a fraction of on-demand where no price is known: a typical one."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One group at one moment; its counts are slots.

    ``primary`` and ``fallback`` are the live instances without those that we have released; of these AWS may
    still show some (``leaving``, all sides). ``primary_desired`` and ``fallback_desired`` are the desired
    capacities as set in AWS, less what the releases that it does not show yet will take off; ``counted`` is
    what AWS counts against them, less the same, and ``showing`` are these, by side; ``owed`` is how much the
    desired capacities in AWS are above those here for them: whoever sets one adds it. ``spot_price`` is the
    least price of spot in the group's pools, as a fraction of on-demand. ``wished`` are the instances
    that are replaced now at the health checker's wish, with its verdict; ``memory`` has them as retiring.
    """

    now: float
    group: Group
    memory: Memory
    primary: tuple[Instance, ...]
    fallback: tuple[Instance, ...]
    primary_desired: int
    fallback_desired: int
    counted: Mapping[Side, int]
    showing: Mapping[Side, int]
    owed: Mapping[Side, int]
    leaving: int = 0
    spot_price: float = UNKNOWN_SPOT_PRICE
    wished: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, observation: Observation, memory: Memory, now: float) -> Situation:
        """Return the situation that ``observation`` shows to one who remembers ``memory``."""
        kept = {side: tuple(i for i in observation.on(side) if i.id not in memory.released) for side in Side}
        # Members and desired capacity of an Auto Scaling group come in one answer: where a released member
        # shows, it still counts, unless the group ends it already.
        going = memory.released
        released = [i for i in observation.instances if i.id in going and not i.given_up] if going else []
        leaving = {side: slots(i for i in released if i.side is side) for side in Side}
        owed = {side: 0 if side in observation.late else leaving[side] for side in Side}
        desired = {side: observation.desired(side) - owed[side] for side in Side}
        wished = followed(observation, memory)
        if wished:
            serves_until = now + NOTICE_SECONDS + observation.group.drain_seconds  # whoever looks again
            ends = {i: now if why in NOT_SERVING else serves_until for i, why in wished.items()}
            memory = replace(memory, doomed={**memory.doomed, **ends}, retiring={**memory.retiring, **ends})
        return cls(
            now=now,
            group=observation.group,
            memory=memory,
            primary=kept[Side.PRIMARY],
            # On-demand is given up by nobody but people and health checks: it is not counted on.
            fallback=tuple(i for i in kept[Side.FALLBACK] if not i.given_up),
            primary_desired=max(0, desired[Side.PRIMARY]),
            fallback_desired=max(0, desired[Side.FALLBACK]),
            counted={side: observation.counted(side) - leaving[side] for side in Side},
            showing=leaving,
            owed=owed,
            leaving=slots(released),
            spot_price=min(observation.spot_prices.values(), default=UNKNOWN_SPOT_PRICE),
            wished=wished,
        )

    def without(self, going: Sequence[Instance]) -> Situation:
        """Return the situation once these have been released."""
        gone = {i.id for i in going}
        freed = {side: slots(i for i in going if i.side is side) for side in Side}
        return replace(
            self,
            primary=tuple(i for i in self.primary if i.id not in gone),
            fallback=tuple(i for i in self.fallback if i.id not in gone),
            primary_desired=self.primary_desired - freed[Side.PRIMARY],
            fallback_desired=self.fallback_desired - freed[Side.FALLBACK],
            counted={side: self.counted[side] - freed[side] for side in Side},
            leaving=self.leaving + slots(going),
        )

    @property
    def reserved(self) -> int:
        """How much of the target is held on-demand because it is paid for anyway."""
        return min(self.group.reserved, self.group.target) if self.group.fallback else 0

    def beyond_reserved(self) -> Situation:
        """Return what is left to a policy: the group without the reserved instances that are there.

        Those that are not there yet, or that AWS takes back, are the policy's to cover like others.
        """
        held: set[str] = set()
        left = self.reserved
        for instance in reversed(self.release_order(self.fallback)):
            if instance.slots <= left and not self.is_doomed(instance):
                held.add(instance.id)
                left -= instance.slots
        group, taken = self.group, self.reserved - left
        return replace(
            self,
            group=replace(group, target=group.target - taken, maximum=group.maximum - taken),
            fallback=tuple(i for i in self.fallback if i.id not in held),
            fallback_desired=max(0, self.fallback_desired - taken),
        )

    def drain_at(self, instance: Instance) -> float | None:
        """Return from when a doomed instance takes no more work, ``None`` without a notice."""
        deadline = self.memory.doomed.get(instance.id)
        return None if deadline is None else deadline - self.group.drain_seconds

    def is_doomed(self, instance: Instance) -> bool:
        """Say whether the instance has a notice, whatever it still does until then."""
        return instance.id in self.memory.doomed

    def is_ready(self, instance: Instance) -> bool:
        """Say whether the instance serves now: all its workers heard, and not yet draining."""
        drain_at = self.drain_at(instance)
        return instance.ready_since is not None and (drain_at is None or drain_at > self.now)

    def is_up(self, instance: Instance) -> bool:
        """Say whether the instance has booted: it works, or could if another let go of the job."""
        return instance.ready_since is not None or (self.group.break_before_make and instance.standing_by)

    def lasting(self, instances: Iterable[Instance]) -> tuple[Instance, ...]:
        """Return those that are up and have no notice: the ones to count on."""
        doomed = self.memory.doomed  # without a notice, ready is whoever has been heard
        return tuple(i for i in instances if i.id not in doomed and self.is_up(i))

    def release_order(self, instances: Iterable[Instance]) -> list[Instance]:
        """Return whom to let go first: the not ready, then those at risk, then the youngest."""
        instances = tuple(instances)
        lasting = {i.id for i in self.lasting(instances)}
        return sorted(
            instances,
            key=lambda i: (i.id in lasting, i.id not in self.memory.at_risk, -i.launched_at, i.id),
        )

    def first_to_go(self, instances: Sequence[Instance], surplus: int) -> Iterator[Instance]:
        """Yield whom a surplus of slots lets go, in the order of release: each that still fits into it."""
        if surplus <= 0:
            return
        for instance in self.release_order(instances):
            if instance.slots <= surplus:
                surplus -= instance.slots
                yield instance

    @property
    def silent(self) -> tuple[Instance, ...]:
        """Who has not reported for longer than any boot takes.

        Nobody else can tell: to AWS it runs.
        """
        overdue = {i for i, since in self.memory.silent.items() if self.now - since >= LONGEST_BOOT}
        live = (*self.primary, *self.fallback) if overdue else ()
        return tuple(i for i in live if i.id in overdue and i.described and not self.is_doomed(i))

    @property
    def mute(self) -> tuple[Instance, ...]:
        """Who of the silent is let go for it: nobody while most are, or none is heard.

        Then it is rather the registry or the network that is silent. Who fell silent a moment ago counts,
        too: who breaks together does not break at once. Who still boots tells nothing.
        """
        overdue = self.silent
        if not overdue:
            return ()
        live = [i for i in (*self.primary, *self.fallback) if i.described and not self.is_doomed(i)]
        heard = sum(i.is_heard for i in live)
        fell = {i.id for i in live if not i.is_heard and i.id in self.memory.booted}
        ill = len(fell.union(i.id for i in overdue))
        return overdue if heard and not is_one_cause(ill, heard + ill) else ()

    def served(self, going: Iterable[Instance]) -> list[Instance]:
        """Return whom of these the others can do without, taken one after the other."""
        going = list(going)
        if not going:
            return []
        serving = slots(self.lasting((*self.primary, *self.fallback)))
        spare = serving + slots(i for i in going if self.is_ready(i)) - self.group.target
        found: list[Instance] = []
        for instance in going:
            count = instance.slots if self.is_ready(instance) else 0
            if count <= spare:
                spare -= count
                found.append(instance)
        return found

    @property
    def retiring(self) -> list[Instance]:
        """Who is replaced by schedule or at a wish, once others serve in their place.

        AWS retires on-demand instances, too, but those of the fallback go by themselves once spot is back.
        """
        live = (*self.primary, *self.fallback) if self.wished else self.primary
        return self.served(
            i
            for i in live
            if i.id in self.memory.retiring
            and self.is_doomed(i)
            and (i.side is Side.PRIMARY or i.id in self.wished)
        )

    @property
    def failed(self) -> list[Instance]:
        """Who does not serve, by the health checker's verdict or because its workers are not heard."""
        live = (*self.primary, *self.fallback) if self.wished else ()
        failed = [i for i in live if i.id in self.wished and not self.is_ready(i)]
        return [i for i in failed if not i.unclear or self.wished[i.id] in NOT_SERVING]

    @property
    def told(self) -> str:
        """What people must know to understand a decision, beside the policy's reason; mostly nothing."""
        wished = ", ".join(f"{i} ({why})" for i, why in self.wished.items())
        elsewhere = self.memory.stand_ins.slots
        parts = (wished and f"to be replaced: {wished}", elsewhere and f"{elsewhere} on premises")
        return "; ".join(part for part in parts if part)

    @property
    def committed_fallback(self) -> int:
        """The on-demand slots that live or have been asked for."""
        return max(slots(self.fallback), self.fallback_desired)

    @property
    def lasting_primary(self) -> int:
        """How many primary slots serve and have no notice."""
        return slots(self.lasting(self.primary))

    @property
    def ready(self) -> int:
        """How many slots of both sides serve now."""
        return slots(i for i in (*self.primary, *self.fallback) if self.is_ready(i))

    @property
    def missing_spot(self) -> int:
        """How many slots the primary group should have and has not.

        By the target, not the desired capacity: that one gives way to the fallback under the ceiling.
        """
        return max(0, self.group.target - slots(i for i in self.primary if not i.given_up))

    @property
    def above_maximum(self) -> int:
        """How many slots stand above the ceiling: AWS launches successors of the doomed before they end.

        What the last launch of a side brought beyond its desired capacity is allowed for.
        """
        sides = (self.primary, self.fallback)
        overshoot = sum(max((i.slots for i in side), default=1) - 1 for side in sides)
        return max(0, sum(map(slots, sides)) + self.leaving - self.group.maximum - overshoot)

    def count(self, market: Market) -> int:
        """Return how many live slots of both sides are paid for in this way."""
        return slots(i for i in (*self.primary, *self.fallback) if i.market is market)
