"""Observes capacity groups, with a bounded number of AWS calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from contracts.limits import NOTICE_SECONDS
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS
from lambdas.aws.budget import Budget
from lambdas.aws.capacity.capacity_service import (
    CapacityService,
    CapacityState,
    GroupNotFoundError,
    Member,
)
from lambdas.aws.hosts import tag
from lambdas.aws.registry import (
    RegisteredWorkers,
    RegistryReader,
    count_serving,
    deadline,
    has_standby_worker,
    progress,
    ready_since,
)
from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity import replacements
from lambdas.core.model import Group, GroupRole, Instance, LaunchFailure, Observation, Pool, PurchaseOption
from lambdas.core.spot_request_status import INTERRUPTION_CODES

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

SPOT_REQUEST_ATTEMPTS: Final = 3
_LIVE: Final = ("pending", "running")
_MAX_FILTER_VALUES: Final = 200


@dataclass(frozen=True, slots=True)
class View:
    """What was read of some groups at once, at ``now`` (epoch seconds).

    Attributes:
        states: Auto Scaling groups and fleets by name.
        details: EC2's descriptions by instance.
        deadlines: Of Spot instances with a notice, by instance.
        registry: Has read the items of the groups' workers.
        failed: Reads that failed for all of them.
        wake_ups: Times at which a run was scheduled for one of them: once is enough.
    """

    now: float
    states: Mapping[str, CapacityState | GroupNotFoundError]
    details: Mapping[str, InstanceTypeDef]
    deadlines: Mapping[str, float]
    registry: RegistryReader
    failed: tuple[str, ...]
    wake_ups: set[float] = field(default_factory=set)

    def states_of(self, settings: GroupSettings) -> dict[GroupRole, CapacityState]:
        """Return a group's states; raise ``GroupNotFoundError`` if one of its resources does not exist."""
        states: dict[GroupRole, CapacityState] = {}
        for role, resource in settings.resources.items():
            state = self.states[resource.name]
            if isinstance(state, GroupNotFoundError):
                raise state
            states[role] = state
        return states

    def slots(self, settings: GroupSettings) -> dict[str, int]:
        """Return the number of slots of each member of a group."""
        states, details = (self.states[r.name] for r in settings.resources.values()), self.details
        return {
            i: settings.group.config.slots.get(
                details[i]["InstanceType"] if i in details else member.instance_type, 1
            )
            for state in states
            if isinstance(state, CapacityState)
            for i, member in state.members.items()
        }


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes the groups of a stack; ``capacity`` is the service by kind of resource."""

    stack: str
    capacity: Mapping[str, CapacityService]
    ec2: EC2Client
    registry: RegistryReader

    def read(self, groups: Sequence[GroupSettings], now: float, budget: Budget) -> View:
        """Read the state of some groups at once, at most `lambdas.aws.passes.MAX_GROUPS`.

        Calls: one per 100 Auto Scaling groups, two per fleet and one more per 1,000 of its members, one
        per 1,000 instances, one per 1,000 Spot requests that AWS interrupted in the last hours, one per 100
        slots.

        Raises:
            BudgetError: the pass is over.
        """
        resources = [resource for settings in groups for resource in settings.resources.values()]
        states: dict[str, CapacityState | GroupNotFoundError] = {}
        for kind in sorted({resource.kind for resource in resources}):
            budget.check("capacity")
            states |= self.capacity[kind].describe([r.name for r in resources if r.kind == kind])
        failed: list[str] = []
        has_members = any(isinstance(state, CapacityState) and state.members for state in states.values())
        view = View(
            now,
            states,
            self._details([settings.group.name for settings in groups], budget),
            self._deadlines(failed, budget) if has_members else {},
            self.registry,
            (),
        )
        keys = [
            key
            for settings in groups
            for key in self.registry.keys(settings.group.name, view.slots(settings))
        ]
        return replace(view, registry=self.registry.prefetched(keys, budget), failed=tuple(failed))

    def observe(
        self,
        settings: GroupSettings,
        now: float,
        budget: Budget,
        view: View | None = None,
        roles_to_check: Collection[GroupRole] = tuple(GroupRole),
    ) -> Observation:
        """Return the state of the group in AWS and in the worker registry.

        Calls besides those for ``view``: one per group role for launch failures, if it lacks capacity or is
        in ``roles_to_check``; one per 100 slots of on-premises hosts. ``read_errors`` has errors of Spot
        requests, launch failures and on-premises workers.

        Raises:
            GroupNotFoundError: a group or fleet does not exist.
            BudgetError: the pass is over.
        """
        view = view or self.read([settings], now, budget)
        states = view.states_of(settings)
        registry = view.registry.read(settings.group.name, view.slots(settings), budget)
        failed = list(view.failed)
        described = [
            _instance(settings, role, instance_id, member, view.details.get(instance_id), registry, now)
            for role, state in states.items()
            for instance_id, member in state.members.items()
        ]
        instances = tuple(_with_deadline(i, view.deadlines.get(i.id)) for i in described if i is not None)
        launch_failures, unknown = self._launch_failures(
            settings, [r for r in states if r in roles_to_check or states[r].lacks_capacity], now, failed
        )
        on_premises_slots = self._on_premises_slots(settings, now, budget, failed)
        requests, ignored = replacements.filter_requests(
            settings.replacement_requests, settings.group, instances, now
        )
        skipped = [*settings.read_errors, *ignored]
        if registry.malformed_items:
            skipped.append(f"{registry.malformed_items} malformed items in the worker registry")
        return Observation(
            group=settings.group,
            primary_desired=states[GroupRole.PRIMARY].desired,
            fallback_desired=states[GroupRole.FALLBACK].desired if GroupRole.FALLBACK in states else 0,
            instances=instances,
            launch_failures=launch_failures,
            modifying=frozenset(role for role, state in states.items() if state.is_modifying),
            eventually_consistent=frozenset(
                role
                for role, resource in settings.resources.items()
                if self.capacity[resource.kind].is_eventually_consistent
            ),
            on_demand_targets={
                role: state.on_demand for role, state in states.items() if state.on_demand is not None
            },
            listed_slots={
                role: sum(member.slots for member in state.members.values() if not member.is_terminating)
                for role, state in states.items()
            },
            activities_unknown=unknown,
            suspended={role: state.suspended for role, state in states.items() if state.suspended},
            replacement_requests=requests,
            rollout_request=settings.rollout_request,
            on_premises_slots=on_premises_slots,
            read_errors=(*skipped, *failed),
            is_partial=bool(failed),
        )

    def _details(self, groups: Sequence[str], budget: Budget) -> dict[str, InstanceTypeDef]:
        """Return the instances by id, including terminated ones.

        So a missing instance is one that EC2 does not describe yet. Instances are selected by tag, because a
        request with a list of ids fails if one of them is unknown.
        """
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{names.TAG_STACK}", "Values": [self.stack]},
                {"Name": f"tag:{names.TAG_GROUP}", "Values": list(groups)},
            ],
            PaginationConfig={"PageSize": 1000},
        )
        return {
            instance["InstanceId"]: instance
            for page in budget.pages("instances", pages)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }

    def owners(self, instance_ids: Collection[str]) -> dict[str, str]:
        """Return the groups of these instances, empty for those of others; makes one call for 200.

        Instances that EC2 does not describe yet are left out.
        Source: EC2 API reference, "List and filter resources": 200 values per filter.
        """
        owners: dict[str, str] = {}
        ids = sorted(instance_ids)
        for start in range(0, len(ids), _MAX_FILTER_VALUES):
            values = ids[start : start + _MAX_FILTER_VALUES]
            response = self.ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": values}])
            for reservation in response["Reservations"]:
                for instance in reservation["Instances"]:
                    is_ours = tag(instance, names.TAG_STACK) == self.stack
                    owners[instance["InstanceId"]] = tag(instance, names.TAG_GROUP) if is_ours else ""
        return owners

    def _deadlines(self, failed: list[str], budget: Budget) -> Mapping[str, float]:
        """Return the deadlines of Spot instances with a notice, in case its event was lost.

        Retried at once: the next pass is half a notice later.
        """
        error_text = ""
        for _ in range(SPOT_REQUEST_ATTEMPTS):
            try:
                return self._interrupted(budget)
            except (BotoCoreError, ClientError) as error:
                error_text = f"Spot requests not read: {error}"
        failed.append(error_text)
        return {}

    def _interrupted(self, budget: Budget) -> Mapping[str, float]:
        """Return the deadlines by instance id; AWS lists requests for hours after their instances ended."""
        pages = self.ec2.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "status-code", "Values": list(INTERRUPTION_CODES)}],
            PaginationConfig={"PageSize": 1000},
        )
        return {
            request["InstanceId"]: request["Status"]["UpdateTime"].timestamp() + NOTICE_SECONDS
            for page in budget.pages("Spot requests", pages)
            for request in page["SpotInstanceRequests"]
            if "InstanceId" in request
        }

    def _on_premises_slots(
        self, settings: GroupSettings, now: float, budget: Budget, failed: list[str]
    ) -> int | None:
        """Return the slots that on-premises workers serve; None if unknown."""
        if not settings.group.config.on_premises:
            return 0
        try:
            registered = self.registry.read_on_premises(
                settings.group.name, settings.group.config.on_premises_hosts, budget
            )
        except (BotoCoreError, ClientError) as error:
            failed.append(f"on-premises workers not read: {error}")
            return None
        return count_serving(registered, now) // settings.group.config.on_premises

    def _launch_failures(
        self, settings: GroupSettings, roles: Sequence[GroupRole], now: float, failed: list[str]
    ) -> tuple[tuple[LaunchFailure, ...], frozenset[GroupRole]]:
        """Return the launch failures, and the group roles whose activities could not be read."""
        failures: list[LaunchFailure] = []
        unknown: set[GroupRole] = set()
        for role in roles:
            resource = settings.resources[role]
            try:
                failures += self.capacity[resource.kind].launch_failures(resource.name, role, now)
            except (BotoCoreError, ClientError) as error:
                failed.append(f"launches of {resource.name!r} not read: {error}")
                unknown.add(role)
        return tuple(failures), frozenset(unknown)


def _instance(
    settings: GroupSettings,
    role: GroupRole,
    instance_id: str,
    member: Member,
    detail: InstanceTypeDef | None,
    registry: RegisteredWorkers,
    now: float,
) -> Instance | None:
    """Return a member as an instance; None if it is terminated and still listed.

    A member that EC2 does not describe yet counts: if it were left out, the group might terminate another for
    it.
    Source: EC2 API reference, "Eventual consistency".
    """
    if detail is not None and detail["State"]["Name"] not in _LIVE:
        return None
    workers = registry.workers.get(instance_id, [])
    instance_type = member.instance_type if detail is None else detail["InstanceType"]
    expected_workers = settings.group.config.slots.get(instance_type, 1)
    if detail is None:
        zone, purchase_option, launched_at = member.zone, _likely_option(role, settings.group), now
    else:
        zone, launched_at = detail["Placement"]["AvailabilityZone"], detail["LaunchTime"].timestamp()
        is_spot = detail.get("InstanceLifecycle") == "spot"
        purchase_option = PurchaseOption.SPOT if is_spot else PurchaseOption.ON_DEMAND
        # A start from a warm pool renews the launch time: older heartbeats are of an earlier start.
        workers = [w for w in workers if w.heartbeat > launched_at - MAX_CLOCK_SKEW_SECONDS]
    hook_deadline = now + NOTICE_SECONDS if member.is_terminating else None
    deadlines = [d for d in (hook_deadline, deadline(workers, now)) if d is not None]
    ready = ready_since(workers, expected_workers, now) if member.is_healthy else None
    return Instance(
        id=instance_id,
        pool=_pool(instance_type, zone),
        purchase_option=purchase_option,
        group_role=role,
        launched_at=launched_at,
        ready_since=ready,
        deadline=min(deadlines, default=None),
        is_standby=member.is_healthy and has_standby_worker(workers, now),
        is_described=detail is not None,
        is_terminating=member.is_terminating,
        slots=member.slots,
        has_malformed_records=ready is None and instance_id in registry.malformed_hosts,
        progress=progress(workers, now),
    )


def _with_deadline(instance: Instance, deadline_: float | None) -> Instance:
    if deadline_ is None or (instance.deadline is not None and instance.deadline <= deadline_):
        return instance
    return replace(instance, deadline=deadline_)


def _likely_option(role: GroupRole, group: Group) -> PurchaseOption:
    """Return the purchase option of most instances of a group role."""
    is_spot = role is GroupRole.PRIMARY and group.config.spot_percentage > 0
    return PurchaseOption.SPOT if is_spot else PurchaseOption.ON_DEMAND


@cache
def _pool(instance_type: str, zone: str) -> Pool:
    """Return the same object for equal pools: thousands of instances share it, and compare by identity."""
    return Pool(instance_type, zone)
