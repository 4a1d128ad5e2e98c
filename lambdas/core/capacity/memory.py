"""Soft state of a group between two runs of the controller. Losing it costs time, never correctness.

The source of truth is AWS and the worker registry. Sizes are bounded: the item stays far below DynamoDB's
limit of 400 KB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts import codec
from contracts.group.warm_pool import on_demand_share
from contracts.limits import NOTICE_SECONDS
from contracts.stored import FieldMark, stored
from lambdas.core import packing
from lambdas.core.capacity import launch_causes, on_premises
from lambdas.core.capacity.history import History, update_history
from lambdas.core.capacity.on_premises import OnPremisesOffset
from lambdas.core.deadline import record
from lambdas.core.deadline.record import JobRecord
from lambdas.core.events import Event, InterruptionNotice, RebalanceRecommendation, ScheduledChange
from lambdas.core.model import (
    GroupRole,
    LaunchFailure,
    Observation,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
    slots,
)
from lambdas.core.money import bill
from lambdas.core.money.bill import Bill

FORMAT: Final = 1
MARK_RETENTION_SECONDS: Final = 900.0
"""Retention of marks after their instance or deadline is over: longer than any API returns stale data."""
TERMINATION_SECONDS: Final = 300.0
"""Validity of a termination request; an instance that is listed for longer was not terminated."""
REPLACEMENT_WINDOW_SECONDS: Final = 900.0
"""Time for which a replacement counts against the number of simultaneous replacements."""
RETIREMENT_LEAD_SECONDS: Final = 3600.0
"""Time before a scheduled retirement at which the instance is treated as if it had a notice."""
SETTLE_SECONDS: Final = 60.0
"""Time for which a modified Spot Fleet may show its old target; estimated.

Source: jenkinsci/ec2-fleet-plugin, pull request 159.
"""
PRICE_SECONDS: Final = 600.0
"""Validity of a price. Source: EC2 user guide, "Spot Instances": prices "are adjusted gradually"."""
BOOT_SAMPLES: Final = 20
MIN_LEADS: Final = 5
"""Number of leads from which on their maximum is relied on."""
EARLY_SECONDS: Final = 30.0
"""An instance that ends so long before its deadline had less notice than announced."""
DEFAULT_BOOT_SECONDS: Final = 180.0
"""Boot time to plan with before any is measured: that of a typical cold boot."""
MAX_BOOT_SECONDS: Final = 1800.0
"""Maximum boot time; a longer time to readiness is the restart of a worker on an old instance."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Memory:
    """Soft state of one group.

    Attributes:
        termination_deadlines: Deadline by instance id, from events and observations.
        at_risk: Time of the rebalance recommendation, by instance id.
        retiring: Time at which AWS stops, reboots or retires the instance by schedule, by instance id.
        termination_requests: Time of the controller's termination request, by instance id: a notice that it
            causes must not trigger a replacement.
        replacement_times: Time of the termination on request of the health checker, by instance id.
        boots: Newest boot times in seconds, by purchase option.
        booted: Instances whose boot time is recorded.
        fallback_leads: Newest times in seconds by which fallback capacity had to be requested ahead of its
            use: until a run of the controller saw it ready, with refused launches and late runs; a whole
            notice where an instance ended early.
        fallback_requested_at: Time of such a request whose capacity was not ready at the last observation.
        not_reporting: Since when the instance has not reported, by instance id.
        requested_capacity: Desired capacity last requested, and the time, of groups that show it late.
        active_alarms: Causes of the alarms that were raised and are not resolved.
        alarms_without_cause: When the cause of a raised alarm ended, for an hour.
        launch_failures: Failures that raise alarms, until something changes (``launch_causes``).
        settled_at: Time by group at which such failures ended: those before it are past.
        configuration: As in ``Observation``, when they were last checked.
        warm_pool_lacks_since: Since when the warm pool is below its size.
        zone_tries: When a zone was last tried for a service that runs in another alone, by zone.
        lone_replaced_at: When the only instance was last replaced because it did not report.
        spot_prices: As in ``Observation``, read at ``priced_at`` (``None``: not yet).
        volume_zone: Zone in which a job worked last, that of its volume; empty before, and for services.
        on_premises_offset: Slots that on-premises workers serve.
        bill: Cost of the run of a job with a budget.
        without_spot_since: Since when the group, which has a Spot share, runs On-Demand Instances alone;
            ``None`` while it holds Spot or nothing.
    """

    termination_deadlines: Mapping[str, float] = field(default_factory=dict)
    at_risk: Mapping[str, float] = field(default_factory=dict)
    retiring: Mapping[str, float] = field(default_factory=dict)
    termination_requests: Mapping[str, float] = field(default_factory=dict)
    replacement_times: Mapping[str, float] = field(default_factory=dict)
    boots: Mapping[PurchaseOption, tuple[float, ...]] = field(default_factory=dict)
    booted: frozenset[str] = frozenset()
    fallback_leads: tuple[float, ...] = ()
    fallback_requested_at: float | None = None
    not_reporting: Mapping[str, float] = field(default_factory=dict)
    requested_capacity: Mapping[GroupRole, tuple[int, float]] = field(default_factory=dict)
    active_alarms: frozenset[str] = frozenset()
    alarms_without_cause: Annotated[Mapping[str, float], FieldMark.SPARSE] = field(default_factory=dict)
    launch_failures: Annotated[tuple[LaunchFailure, ...], FieldMark.SPARSE] = ()
    settled_at: Annotated[Mapping[GroupRole, float], FieldMark.SPARSE] = field(default_factory=dict)
    configuration: Annotated[str, FieldMark.SPARSE] = ""
    warm_pool_lacks_since: Annotated[float | None, FieldMark.SPARSE] = None
    zone_tries: Annotated[Mapping[str, float], FieldMark.SPARSE] = field(default_factory=dict)
    lone_replaced_at: Annotated[float | None, FieldMark.SPARSE] = None
    history: History = field(default_factory=History)
    spot_prices: Mapping[str, float] = field(default_factory=dict)
    priced_at: float | None = None
    volume_zone: str = ""
    job: JobRecord = field(default_factory=JobRecord)
    on_premises_offset: OnPremisesOffset = field(default_factory=OnPremisesOffset)
    bill: Bill = field(default_factory=Bill)
    without_spot_since: float | None = None

    def boot_seconds(self, purchase_option: PurchaseOption) -> float:
        """Return the mean of the newest boot times, ``DEFAULT_BOOT_SECONDS`` before any."""
        boots = self.boots.get(purchase_option, ())
        return min(max(0.0, sum(boots) / len(boots)), MAX_BOOT_SECONDS) if boots else DEFAULT_BOOT_SECONDS

    def fallback_lead(self) -> float:
        """Return the longest of ``fallback_leads`` (seconds), infinite below ``MIN_LEADS`` of them."""
        return max(0.0, *self.fallback_leads) if len(self.fallback_leads) >= MIN_LEADS else math.inf

    def slowest_boot(self, unknown: float) -> float:
        """Return the boot time of the slower purchase option, ``unknown`` before any boot is measured."""
        measured = [option for option in PurchaseOption if self.boots.get(option)]
        return max((self.boot_seconds(option) for option in measured), default=unknown)


def record_requests(
    memory: Memory,
    observation: Observation,
    actions: Iterable[SetDesired | TerminateInstances],
    now: float,
    replacements: Set[str],
) -> Memory:
    """Return the memory after requesting the actions; ``replacements`` are instances replaced by request."""
    termination_requests = dict(memory.termination_requests)
    replacement_times = dict(memory.replacement_times)
    requested_capacity = dict(memory.requested_capacity)
    fallback_requested_at = memory.fallback_requested_at
    capacity = {role: observation.desired_capacity(role) for role in GroupRole}
    for action in actions:
        role = action.group_role
        if isinstance(action, SetDesired):
            if role is GroupRole.FALLBACK and action.capacity > capacity[role]:
                fallback_requested_at = now if fallback_requested_at is None else fallback_requested_at
            capacity[role] = action.capacity
        else:
            capacity[role] -= action.slots
            termination_requests |= dict.fromkeys(action.instance_ids, now)
            replacement_times |= dict.fromkeys((i for i in action.instance_ids if i in replacements), now)
        requested_capacity[role] = (capacity[role], now)
    return replace(
        memory,
        termination_requests=termination_requests,
        replacement_times=replacement_times,
        fallback_requested_at=fallback_requested_at,
        requested_capacity={
            role: request
            for role, request in requested_capacity.items()
            if role in observation.eventually_consistent
        },
    )


def pending_capacity(memory: Memory, observation: Observation, now: float) -> dict[GroupRole, int]:
    """Return the groups that accept no change now, with the maximum capacity that they may reach.

    A change on top of one that is not visible yet would be computed from stale capacity.
    """
    pending = {role: observation.desired_capacity(role) for role in observation.modifying}
    for role, (capacity, requested_at) in memory.requested_capacity.items():
        visible = observation.desired_capacity(role)
        if role in pending or (visible != capacity and abs(now - requested_at) < SETTLE_SECONDS):
            pending[role] = max(visible, capacity)
    return pending


def without_failed_request(memory: Memory, role: GroupRole, not_terminated: Iterable[str]) -> Memory:
    """Return the memory after a capacity change of a group failed and left instances not terminated."""
    remaining = frozenset(not_terminated)
    return replace(
        memory,
        termination_requests={i: at for i, at in memory.termination_requests.items() if i not in remaining},
        replacement_times={i: at for i, at in memory.replacement_times.items() if i not in remaining},
        requested_capacity={
            changed: request for changed, request in memory.requested_capacity.items() if changed is not role
        },
    )


def apply_events(memory: Memory, events: Iterable[Event], now: float) -> Memory:
    """Return the memory with the marks of events; repeated and reordered events change nothing."""
    deadlines = dict(memory.termination_deadlines)
    at_risk, retiring = dict(memory.at_risk), dict(memory.retiring)
    for event in events:
        match event:
            case InterruptionNotice(instance_id, deadline):
                deadlines[instance_id] = min(deadline, deadlines.get(instance_id, deadline))
            case RebalanceRecommendation(instance_id):
                at_risk.setdefault(instance_id, now)
            case ScheduledChange(instance_ids, deadline):
                for instance_id in instance_ids:
                    retiring[instance_id] = min(deadline, retiring.get(instance_id, deadline))
            case _:
                pass
    return replace(memory, termination_deadlines=deadlines, at_risk=at_risk, retiring=retiring)


def update_memory(memory: Memory, observation: Observation, now: float) -> Memory:
    """Return the memory after an observation: adds deadlines and boot times, drops terminated instances."""
    present = {i.id for i in observation.instances}
    # Events of the whole account arrive here, weeks ahead.
    retiring = {
        i: at for i, at in memory.retiring.items() if i in present and at + MARK_RETENTION_SECONDS > now
    }
    expected_ends = {**memory.termination_requests, **memory.retiring}
    history = update_history(memory.history, observation, memory.termination_deadlines, expected_ends, now)
    # A deadline is dropped if the instance outlives it for long: the notice was wrong or withdrawn.
    # None is further ahead than a retirement's: otherwise a wrong one would be believed for as long.
    deadlines = {
        i: min(at, now + RETIREMENT_LEAD_SECONDS)
        for i, at in memory.termination_deadlines.items()
        if at + MARK_RETENTION_SECONDS > now
    }
    for instance_id, at in retiring.items():
        if at - RETIREMENT_LEAD_SECONDS <= now:
            deadlines[instance_id] = min(at, deadlines.get(instance_id, at))
    at_risk = {i: at for i, at in memory.at_risk.items() if i in present or at + MARK_RETENTION_SECONDS > now}
    boots = {option: list(samples) for option, samples in memory.boots.items()}
    booted = set(memory.booted & present)
    requests = {i: at for i, at in memory.termination_requests.items() if abs(now - at) < TERMINATION_SECONDS}
    for instance in observation.instances:
        # A terminated instance may have returned to a warm pool and started again.
        if instance.id in requests and instance.is_described and instance.launched_at > requests[instance.id]:
            del requests[instance.id]
    not_reporting = {
        i.id: memory.not_reporting.get(i.id, now)
        for i in observation.instances
        if not i.is_reporting and (i.id in memory.not_reporting or not observation.registry_unknown)
    }
    for instance in observation.instances:
        if instance.deadline is not None:
            deadlines[instance.id] = min(instance.deadline, deadlines.get(instance.id, instance.deadline))
        if instance.is_described and instance.ready_since is not None and instance.id not in booted:
            booted.add(instance.id)
            boot = max(0.0, instance.ready_since - instance.launched_at)
            if boot <= MAX_BOOT_SECONDS:
                boots.setdefault(instance.purchase_option, []).append(boot)
    fallback_leads, fallback_requested_at = _fallback_leads(memory, observation, now)
    failures, settled_at = launch_causes.update(memory, observation, now)
    return replace(
        memory,
        fallback_leads=fallback_leads,
        fallback_requested_at=fallback_requested_at,
        termination_deadlines=deadlines,
        at_risk=at_risk,
        retiring=retiring,
        termination_requests=requests,
        replacement_times={
            i: at for i, at in memory.replacement_times.items() if abs(now - at) < REPLACEMENT_WINDOW_SECONDS
        },
        boots={option: tuple(samples[-BOOT_SAMPLES:]) for option, samples in boots.items()},
        booted=frozenset(booted),
        not_reporting=not_reporting,
        history=history,
        volume_zone=_volume_zone(memory, observation),
        job=record.update(memory.job, observation, now),
        on_premises_offset=on_premises.update(memory.on_premises_offset, observation.on_premises_slots, now),
        bill=bill.update_bill(memory.bill, observation, now),
        without_spot_since=_without_spot_since(memory, observation, now),
        launch_failures=failures,
        settled_at=settled_at,
        configuration=observation.configuration or memory.configuration,
        warm_pool_lacks_since=warm_pool_lacks_since(memory, observation, now),
    )


def warm_pool_lacks_since(memory: Memory, observation: Observation, now: float) -> float | None:
    """Return since when (epoch seconds) the warm pool is below its size; ``None`` if it is not.

    What cannot be observed is as remembered.
    """
    if observation.warm_pool_lacks is None:
        return memory.warm_pool_lacks_since
    if not observation.warm_pool_lacks:
        return None
    return now if memory.warm_pool_lacks_since is None else min(memory.warm_pool_lacks_since, now)


def _without_spot_since(memory: Memory, observation: Observation, now: float) -> float | None:
    """Return since when the group runs On-Demand alone although it has a fallback and a Spot share."""
    group = observation.group
    on_demand = on_demand_share(group.target, group.config.base, group.config.spot_percentage)
    options = {i.purchase_option for i in observation.instances}
    if not group.fallback or group.target <= max(group.reserved, on_demand):
        return None
    if options != {PurchaseOption.ON_DEMAND}:
        return None
    return now if memory.without_spot_since is None else min(memory.without_spot_since, now)


def _fallback_leads(
    memory: Memory, observation: Observation, now: float
) -> tuple[tuple[float, ...], float | None]:
    """Return the leads of fallback capacity, and the time of the request that is not served yet.

    A request that was withdrawn before it was served counts only if it waited longer than any other.
    """
    leads, requested_at = memory.fallback_leads, memory.fallback_requested_at
    if _has_ended_early(memory, observation, now):
        leads = (*leads, NOTICE_SECONDS)
    fallback = [i for i in observation.instances if i.group_role is GroupRole.FALLBACK]
    ready = [i for i in fallback if i.ready_since is not None]
    if requested_at is not None and slots(ready) >= observation.fallback_desired:
        lead = abs(now - requested_at)  # a clock that was set back must not look like a fast boot
        if any(i.launched_at >= requested_at for i in ready) or lead > max(leads, default=0.0):
            leads = (*leads, lead)
        requested_at = None
    return leads[-BOOT_SAMPLES:], requested_at


def _has_ended_early(memory: Memory, observation: Observation, now: float) -> bool:
    """Return whether an interrupted instance ended before its deadline without a request of ours."""
    present = {i.id for i in observation.instances}
    return any(
        instance_id in memory.booted - present - memory.termination_requests.keys()
        and now < deadline - EARLY_SECONDS
        for instance_id, deadline in memory.termination_deadlines.items()
    )


def _volume_zone(memory: Memory, observation: Observation) -> str:
    """Return the zone of the newest instance that works on a job, else the previous zone."""
    if not observation.group.config.break_before_make:
        return ""
    working = [(i.ready_since, i.pool.zone) for i in observation.instances if i.ready_since and i.pool.zone]
    return max(working, default=(0.0, memory.volume_zone))[1]


def dump(memory: Memory) -> str:
    """Serialize the memory as JSON, compressed if it is long; equal memories give equal text."""
    return packing.packed({"format": FORMAT, **codec.dump(memory)})


def parse(text: str) -> Memory:
    """Parse the output of ``dump``; raise ``ValueError`` if it is invalid.

    Every value is checked: an invalid one would fail every run and never be overwritten.
    """
    memory = codec.parse_versioned(Memory, packing.unpacked(text), FORMAT)
    record.check(memory.job)
    return memory
