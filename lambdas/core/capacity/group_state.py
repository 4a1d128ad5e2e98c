"""State of a capacity group: an observation combined with the controller's memory. Input of the policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.replacement_requests import NOT_SERVING
from contracts.group.warm_pool import on_demand_share
from contracts.limits import NOTICE_SECONDS
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS, Memory
from lambdas.core.capacity.replacements import select_replacements
from lambdas.core.model import (
    Group,
    GroupRole,
    Instance,
    LaunchFailureKind,
    Observation,
    PurchaseOption,
    is_shared_cause,
    slots,
    slots_by_option,
)

UNKNOWN_SPOT_PRICE: Final = 0.3
"""Typical Spot price relative to On-Demand, used if no price is known."""
LONE_SECONDS: Final = 6 * 3600.0
"""Time between two replacements of the only instance of a stack that does not report."""
_MAX_FAILURE_CHARACTERS: Final = 200
"""Of a launch failure in a decision's reason; the alarm has the whole message."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """State of one group at one time; counts are slots.

    AWS may still list instances whose termination the controller requested. They are excluded from the
    instances, the desired capacities and the counted slots here.

    Attributes:
        counted_slots: Slots that AWS counts against the desired capacity, by group.
        unterminated_slots: Slots requested to terminate but still listed by AWS, by group.
        pending_reduction: By group, how far the desired capacity in AWS exceeds the one here because of them;
            added to every desired capacity that is set.
        separate_targets: Groups with a target each for Spot and On-Demand.
        spot_price: Lowest Spot price of the group's pools, relative to On-Demand.
        replacements: Instances to replace now at the health checker's request, with its verdict; ``memory``
            has them as retiring.
        unknown_failure: Reason of the primary group's newest launch failure if it is unknown, else empty.
        others_report, registry_unknown: As in ``Observation``.
    """

    now: float
    group: Group
    memory: Memory
    primary: tuple[Instance, ...]
    fallback: tuple[Instance, ...]
    primary_desired: int
    fallback_desired: int
    counted_slots: Mapping[GroupRole, int]
    unterminated_slots: Mapping[GroupRole, int]
    pending_reduction: Mapping[GroupRole, int]
    terminating_slots: int = 0
    separate_targets: frozenset[GroupRole] = frozenset()
    spot_price: float = UNKNOWN_SPOT_PRICE
    replacements: Mapping[str, str] = field(default_factory=dict)
    unknown_failure: str = ""
    others_report: bool | None = None
    registry_unknown: bool = False

    @classmethod
    def from_observation(cls, observation: Observation, memory: Memory, now: float) -> GroupState:
        """Combine an observation with the memory."""
        requested = memory.termination_requests
        remaining = {
            role: tuple(i for i in observation.instances_of(role) if i.id not in requested)
            for role in GroupRole
        }
        # One API response has the instances and the desired capacity of an Auto Scaling group: an instance
        # that it lists still counts, unless the group is terminating it.
        listed = [i for i in observation.instances if i.id in requested and not i.is_terminating]
        unterminated = {role: slots(i for i in listed if i.group_role is role) for role in GroupRole}
        pending = {
            role: 0
            if role in observation.eventually_consistent
            else min(unterminated[role], observation.desired_capacity(role))
            for role in GroupRole
        }
        desired = {role: observation.desired_capacity(role) - pending[role] for role in GroupRole}
        replacements = select_replacements(observation, memory)
        if replacements:
            # Moves on with every run.
            drain_end = now + NOTICE_SECONDS + observation.group.config.drain_seconds
            # A job saves and ends before its successor begins.
            at_once = observation.group.config.break_before_make
            ends = {
                i: now if at_once or reason in NOT_SERVING else drain_end
                for i, reason in replacements.items()
            }
            memory = replace(
                memory,
                termination_deadlines={**memory.termination_deadlines, **ends},
                retiring={**memory.retiring, **ends},
            )
        return cls(
            now=now,
            group=observation.group,
            memory=memory,
            primary=remaining[GroupRole.PRIMARY],
            # The fallback group terminates On-Demand instances only for operators and health checks: such
            # instances have no successor and cannot be relied on.
            fallback=tuple(i for i in remaining[GroupRole.FALLBACK] if not i.is_terminating),
            primary_desired=max(0, desired[GroupRole.PRIMARY]),
            fallback_desired=max(0, desired[GroupRole.FALLBACK]),
            counted_slots={role: observation.counted_slots(role) - unterminated[role] for role in GroupRole},
            unterminated_slots=unterminated,
            pending_reduction=pending,
            terminating_slots=slots(listed),
            separate_targets=frozenset(observation.on_demand_targets),
            spot_price=min(observation.spot_prices.values(), default=UNKNOWN_SPOT_PRICE),
            replacements=replacements,
            unknown_failure=_unknown_failure(memory),
            others_report=observation.others_report,
            registry_unknown=observation.registry_unknown,
        )

    def without(self, instances: Sequence[Instance]) -> GroupState:
        """Return the state after a request to terminate these instances."""
        removed = {i.id for i in instances}
        freed = {role: slots(i for i in instances if i.group_role is role) for role in GroupRole}
        return replace(
            self,
            primary=tuple(i for i in self.primary if i.id not in removed),
            fallback=tuple(i for i in self.fallback if i.id not in removed),
            primary_desired=self.primary_desired - freed[GroupRole.PRIMARY],
            fallback_desired=self.fallback_desired - freed[GroupRole.FALLBACK],
            counted_slots={role: self.counted_slots[role] - freed[role] for role in GroupRole},
            terminating_slots=self.terminating_slots + slots(instances),
        )

    @property
    def reserved(self) -> int:
        """Slots of the target held by reserved On-Demand instances, which are already paid for."""
        return min(self.group.reserved, self.group.target) if self.group.fallback else 0

    def beyond_reserved(self) -> GroupState:
        """Return the group without its running reserved instances, for the policy to decide on.

        Reserved instances that are missing or interrupted are covered by the policy, as others are.
        """
        excluded: set[str] = set()
        missing = self.reserved
        for instance in reversed(self.scale_in_order(self.fallback)):
            if instance.slots <= missing and not self.is_interrupted(instance):
                excluded.add(instance.id)
                missing -= instance.slots
        group, running = self.group, self.reserved - missing
        return replace(
            self,
            group=replace(group, target=group.target - running, maximum=group.maximum - running),
            fallback=tuple(i for i in self.fallback if i.id not in excluded),
            fallback_desired=max(0, self.fallback_desired - running),
        )

    def drain_at(self, instance: Instance) -> float | None:
        """Return when an interrupted instance stops receiving requests, ``None`` without a notice."""
        deadline = self.memory.termination_deadlines.get(instance.id)
        return None if deadline is None else deadline - self.group.config.drain_seconds

    def is_interrupted(self, instance: Instance) -> bool:
        """Return whether the instance has a termination deadline; it may still serve until then."""
        return instance.id in self.memory.termination_deadlines

    def is_ready(self, instance: Instance) -> bool:
        """Return whether the instance serves now: all its workers report, and it does not drain yet."""
        drain_at = self.drain_at(instance)
        return instance.ready_since is not None and (drain_at is None or drain_at > self.now)

    def is_up(self, instance: Instance) -> bool:
        """Return whether the instance has booted: it works, or waits for the job of its predecessor."""
        return instance.ready_since is not None or (
            self.group.config.break_before_make and instance.is_standby
        )

    def stable(self, instances: Iterable[Instance]) -> tuple[Instance, ...]:
        """Return the instances that have booted and have no termination deadline."""
        deadlines = self.memory.termination_deadlines
        return tuple(i for i in instances if i.id not in deadlines and self.is_up(i))

    def scale_in_order(self, instances: Iterable[Instance]) -> list[Instance]:
        """Return the instances in termination order: unstable first, then at risk, then the youngest.

        The only one in the second of two zones is kept before older ones: without it all are in one.
        """
        instances = tuple(instances)
        stable = {i.id: i.pool.zone for i in self.stable(instances)}
        counts = Counter(stable.values())
        alone = {i for i, zone in stable.items() if len(counts) == 2 and counts[zone] == 1}
        at_risk = self.memory.at_risk
        return sorted(
            instances,
            key=lambda i: (i.id in stable, i.id not in at_risk, i.id in alone, -i.launched_at, i.id),
        )

    def minimum_slots(self, role: GroupRole, capacity: int) -> dict[PurchaseOption, int]:
        """Return the slots of each purchase option that AWS holds or replaces in one group of a capacity."""
        if role is GroupRole.FALLBACK:
            return dict.fromkeys(PurchaseOption, 0)
        if role not in self.separate_targets:
            return {PurchaseOption.ON_DEMAND: self.group.config.base, PurchaseOption.SPOT: 0}
        on_demand = on_demand_share(capacity, self.group.config.base, self.group.config.spot_percentage)
        return {PurchaseOption.ON_DEMAND: on_demand, PurchaseOption.SPOT: capacity - on_demand}

    def scale_in_candidates(self, instances: Sequence[Instance], surplus: int) -> Iterator[Instance]:
        """Yield the primary instances to terminate for a surplus of slots, in scale-in order."""
        if surplus <= 0:
            return
        remaining = slots_by_option(instances)
        minimum = self.minimum_slots(GroupRole.PRIMARY, sum(remaining.values()) - surplus)
        for instance in self.scale_in_order(instances):
            option = instance.purchase_option
            if instance.slots <= surplus and remaining[option] - instance.slots >= minimum[option]:
                surplus -= instance.slots
                remaining[option] -= instance.slots
                yield instance

    @property
    def not_reporting(self) -> tuple[Instance, ...]:
        """Instances without a report for longer than the maximum boot time; EC2 shows them as running."""
        if self.registry_unknown:
            return ()
        overdue = {
            i for i, since in self.memory.not_reporting.items() if self.now - since >= MAX_BOOT_SECONDS
        }
        live = (*self.primary, *self.fallback) if overdue else ()
        return tuple(i for i in live if i.id in overdue and i.is_described and not self.is_interrupted(i))

    @property
    def unresponsive(self) -> tuple[Instance, ...]:
        """Instances to terminate because they do not report.

        Empty if most or all do not report: the registry or the network is then the likely cause. Instances
        that stopped reporting only recently count as well, because a shared cause does not affect all at the
        same time; booting instances do not. Of a single instance the rest of the stack tells.
        """
        overdue = self.not_reporting
        if not overdue:
            return ()
        if self.lone_silent:
            return self.lone_silent
        live = [i for i in (*self.primary, *self.fallback) if i.is_described and not self.is_interrupted(i)]
        reporting = sum(i.is_reporting for i in live)
        stopped = {i.id for i in live if not i.is_reporting and i.id in self.memory.booted}
        unhealthy = len(stopped.union(i.id for i in overdue))
        return overdue if reporting and not is_shared_cause(unhealthy, reporting + unhealthy) else ()

    @property
    def lone_silent(self) -> tuple[Instance, ...]:
        """The only instance of the group if it does not report and is to be replaced.

        Not while no instance of the other groups reports, either. Without others only the registry itself
        answers: then at most once in ``LONE_SECONDS``, unless a termination failed: the instance is older.
        """
        overdue, live = self.not_reporting, (*self.primary, *self.fallback)
        replaced_at = self.memory.lone_replaced_at
        is_new = replaced_at is not None and all(i.launched_at > replaced_at for i in live)
        is_recent = is_new and abs(self.now - (replaced_at or 0.0)) < LONE_SECONDS
        if len(live) != 1 or self.others_report is False or (is_recent and not self.others_report):
            return ()
        return overdue

    def expendable(self, candidates: Iterable[Instance]) -> list[Instance]:
        """Return the candidates that the target does not need, considered one after the other."""
        candidates = list(candidates)
        if not candidates:
            return []
        serving = slots(self.stable((*self.primary, *self.fallback)))
        spare = serving + slots(i for i in candidates if self.is_ready(i)) - self.group.target
        expendable: list[Instance] = []
        for instance in candidates:
            count = instance.slots if self.is_ready(instance) else 0
            if count <= spare:
                spare -= count
                expendable.append(instance)
        return expendable

    @property
    def retiring(self) -> list[Instance]:
        """Instances to replace, by schedule of AWS or on request, once their successors serve.

        Scheduled retirements of fallback instances are ignored: they terminate anyway once Spot is back.
        """
        live = (*self.primary, *self.fallback) if self.replacements else self.primary
        return self.expendable(
            i
            for i in live
            if i.id in self.memory.retiring
            and self.is_interrupted(i)
            and (i.group_role is GroupRole.PRIMARY or i.id in self.replacements)
        )

    @property
    def failed(self) -> list[Instance]:
        """Instances to replace that do not serve: by the health checker's verdict, or not reporting."""
        live = (*self.primary, *self.fallback) if self.replacements else ()
        failed = [i for i in live if i.id in self.replacements and not self.is_ready(i)]
        return [i for i in failed if not i.has_malformed_records or self.replacements[i.id] in NOT_SERVING]

    @property
    def notes(self) -> str:
        """Explanation of a decision in addition to the policy's reason; usually empty."""
        replaced = ", ".join(f"{i} ({reason})" for i, reason in self.replacements.items())
        on_premises = self.memory.on_premises_offset.slots
        parts = (
            replaced and f"to be replaced: {replaced}",
            on_premises and f"{on_premises} on premises",
            self.unknown_failure,
        )
        return "; ".join(part for part in parts if part)

    @property
    def committed_fallback(self) -> int:
        """Fallback slots that are live or requested."""
        return max(slots(self.fallback), self.fallback_desired)

    @property
    def stable_primary(self) -> int:
        """Stable slots of the primary group."""
        return slots(self.stable(self.primary))

    @property
    def ready(self) -> int:
        """Slots of both groups that serve now."""
        return slots(i for i in (*self.primary, *self.fallback) if self.is_ready(i))

    @property
    def missing_spot(self) -> int:
        """Slots that the primary group lacks.

        Relative to the target, not to the desired capacity, which the fallback reduces at the maximum.
        """
        return max(0, self.group.target - slots(i for i in self.primary if not i.is_terminating))

    @property
    def above_maximum(self) -> int:
        """Slots above the maximum: AWS launches successors before it terminates interrupted instances.

        Excludes the overshoot of a weighted group's last launch over its desired capacity.
        """
        groups = (self.primary, self.fallback)
        overshoot = sum(max((i.slots for i in group), default=1) - 1 for group in groups)
        return max(0, sum(map(slots, groups)) + self.terminating_slots - self.group.maximum - overshoot)

    def count_slots(self, purchase_option: PurchaseOption) -> int:
        """Return the live slots of both groups with a purchase option."""
        return slots(i for i in (*self.primary, *self.fallback) if i.purchase_option is purchase_option)


def _unknown_failure(memory: Memory) -> str:
    failures = (f for f in memory.launch_failures if f.group_role is GroupRole.PRIMARY)
    reasons = (failure.reason for failure in failures if failure.kind is LaunchFailureKind.UNKNOWN)
    return next(reasons, "")[:_MAX_FAILURE_CHARACTERS]
