"""Observes capacity groups, with a bounded number of AWS calls."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from contracts.limits import NOTICE_SECONDS
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS
from lambdas.aws.budget import Budget
from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import (
    CapacityService,
    CapacityState,
    GroupNotFoundError,
    Launches,
    Member,
)
from lambdas.aws.hosts import tag
from lambdas.aws.registry import (
    RegisteredWorkers,
    RegistryReader,
    count_serving,
    deadline,
    has_standby_worker,
    key_id,
    progress,
    ready_since,
)
from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity import replacements
from lambdas.core.model import Group, GroupRole, Instance, Observation, Pool, PurchaseOption
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
        unobserved: Errors of groups and fleets by name; their members here are those that EC2 knows by tag.
        registry_unknown: Whether the registry could not be read.
        groups: The groups.
        wake_ups: Times at which a run was scheduled for one of them: once is enough.
    """

    now: float
    states: Mapping[str, CapacityState]
    details: Mapping[str, InstanceTypeDef]
    deadlines: Mapping[str, float]
    registry: RegistryReader
    failed: tuple[str, ...]
    wake_ups: set[float] = field(default_factory=set)
    unobserved: Mapping[str, Exception] = field(default_factory=dict)
    registry_unknown: bool = False
    groups: Sequence[GroupSettings] = ()

    def states_of(self, settings: GroupSettings) -> dict[GroupRole, CapacityState]:
        """Return a group's states; raise the error if none of its resources can be observed."""
        errors = [self.unobserved.get(resource.name) for resource in settings.resources.values()]
        if errors[0] is not None and all(errors):
            raise errors[0]
        return {role: self.states[resource.name] for role, resource in settings.resources.items()}

    def others_report(self, settings: GroupSettings) -> bool | None:
        """Return whether an instance of another group reports; ``None`` if there is none."""
        keys = [
            key
            for settings_ in self.groups
            if settings_.group.name != settings.group.name
            for key in self.registry.keys(settings_.group.name, self.slots(settings_))
        ]
        return self.registry.has_fresh(keys, self.now) if keys else None

    def slots(self, settings: GroupSettings) -> dict[str, int]:
        """Return the number of slots of each member of a group."""
        states, details = (self.states[r.name] for r in settings.resources.values()), self.details
        return {
            i: settings.group.config.slots.get(
                details[i]["InstanceType"] if i in details else member.instance_type, 1
            )
            for state in states
            for i, member in state.members.items()
        }


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes the groups of a stack; ``capacity`` is the service by kind of resource."""

    stack: str
    capacity: Mapping[str, CapacityService]
    ec2: EC2Client
    registry: RegistryReader

    def read(
        self, groups: Sequence[GroupSettings], now: float, budget: Budget, *, is_last: bool = True
    ) -> View:
        """Read the state of some groups at once, at most `lambdas.aws.passes.MAX_GROUPS`.

        Calls: one per 100 Auto Scaling groups, two per fleet and one more per 1,000 of its members, one
        per 1,000 instances, one per 1,000 Spot requests that AWS interrupted in the last hours, one per 100
        slots. ``is_last``: if a read fails, none will be tried again, and the rest must do.

        Raises:
            BudgetError: the pass is over.
            BotoCoreError, ClientError: a read failed that is tried again, or nothing is known.
        """
        resources = [resource for settings in groups for resource in settings.resources.values()]
        states: dict[str, CapacityState] = {}
        unobserved: dict[str, Exception] = {}
        failed: list[str] = []
        for kind in sorted({resource.kind for resource in resources}):
            budget.check("capacity")
            group_names = [r.name for r in resources if r.kind == kind]
            try:
                described = self.capacity[kind].describe(group_names)
            except (BotoCoreError, ClientError) as error:
                if not is_last:
                    raise
                failed.append(f"{kind} not read: {error}")
                described = {}
                unobserved |= dict.fromkeys(group_names, error)
            for name, state in described.items():
                if isinstance(state, CapacityState):
                    states[name] = state
                else:
                    unobserved[name] = state
        details: Mapping[str, InstanceTypeDef] = {}
        try:
            details = self._details([settings.group.name for settings in groups], budget)
        except (BotoCoreError, ClientError) as error:
            if unobserved or not is_last:
                raise
            failed.append(f"instances not read: {error}")
        for settings in groups:
            states |= _tagged_members(settings, states, details, unobserved)
        has_members = any(state.members for state in states.values())
        deadlines = self._deadlines(failed, budget) if has_members else {}
        view = View(now, states, details, deadlines, self.registry, (), unobserved=unobserved, groups=groups)
        keys = [
            key
            for settings in groups
            for key in self.registry.keys(settings.group.name, view.slots(settings))
        ]
        try:
            view = replace(view, registry=self.registry.prefetched(keys, budget))
        except (BotoCoreError, ClientError) as error:
            if not is_last:
                raise
            failed.append(f"worker registry not read: {error}")
            empty = replace(self.registry, fetched=dict.fromkeys(map(key_id, keys)))
            view = replace(view, registry=empty, registry_unknown=True)
        return replace(view, failed=tuple(failed))

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
        unobserved = {
            role: read_error
            for role, resource in settings.resources.items()
            if (read_error := view.unobserved.get(resource.name)) is not None
        }
        roles = [r for r in states if r in roles_to_check or states[r].lacks_capacity]
        launches, unknown = self._launches(settings, [r for r in roles if r not in unobserved], now, failed)
        is_lone = len(instances) == 1 and not instances[0].is_reporting
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
            launch_failures=tuple(f for newest in launches.values() for f in newest.failures),
            launches_succeed=frozenset(role for role, newest in launches.items() if newest.succeeded),
            modifying=frozenset(role for role, state in states.items() if state.is_modifying),
            unobserved={role: str(error) for role, error in unobserved.items()},
            missing=frozenset(r for r, e in unobserved.items() if isinstance(e, GroupNotFoundError)),
            registry_unknown=view.registry_unknown,
            others_report=view.others_report(settings) if is_lone else None,
            warm_pool_lacks=self._warm_pool_lacks(settings, states, now, failed),
            configuration=_digest(settings, states),
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
            bounds={role: state.bounds for role, state in states.items() if state.bounds is not None},
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

    def _warm_pool_lacks(
        self,
        settings: GroupSettings,
        states: Mapping[GroupRole, CapacityState],
        now: float,
        failed: list[str],
    ) -> str | None:
        """See ``Observation``; the activities are read while the pool is below its size."""
        state, resource = states.get(GroupRole.FALLBACK), settings.resources.get(GroupRole.FALLBACK)
        service = None if resource is None else self.capacity[resource.kind]
        if state is None or resource is None or not isinstance(service, AutoScalingService):
            return ""
        if state.is_modifying or state.warm_wanted == 0:  # not observed, or all that it may have is in use
            return None
        if state.warm_wanted is None or state.warm >= state.warm_wanted:
            return ""
        reason = None
        try:
            reason = service.warm_pool_failure(resource.name)
        except (BotoCoreError, ClientError) as error:
            failed.append(f"launches into the warm pool of {resource.name!r} not read: {error}")
        return f"{state.warm} of {state.warm_wanted} instances: {reason or 'see its activities'}"

    def _launches(
        self, settings: GroupSettings, roles: Sequence[GroupRole], now: float, failed: list[str]
    ) -> tuple[dict[GroupRole, Launches], frozenset[GroupRole]]:
        """Return the newest launches, and the group roles whose activities could not be read."""
        launches: dict[GroupRole, Launches] = {}
        unknown: set[GroupRole] = set()
        for role in roles:
            resource = settings.resources[role]
            try:
                launches[role] = self.capacity[resource.kind].launch_failures(resource.name, role, now)
            except (BotoCoreError, ClientError) as error:
                failed.append(f"launches of {resource.name!r} not read: {error}")
                unknown.add(role)
        return launches, frozenset(unknown)


def _tagged_members(
    settings: GroupSettings,
    states: Mapping[str, CapacityState],
    details: Mapping[str, InstanceTypeDef],
    unobserved: Mapping[str, Exception],
) -> dict[str, CapacityState]:
    """Return the states of a group's unobserved resources: what EC2 runs of them, and no change."""
    resources = settings.resources.items()
    member_ids = {i for _, r in resources if r.name in states for i in states[r.name].members}
    weights = settings.group.config.weights
    tagged: dict[str, CapacityState] = {}
    for role, resource in resources:
        if resource.name in unobserved:
            members = {
                i: Member(
                    detail["InstanceType"],
                    detail["Placement"]["AvailabilityZone"],
                    slots=weights.get(detail["InstanceType"], 1),
                )
                for i, detail in details.items()
                if i not in member_ids
                and detail["State"]["Name"] in _LIVE
                and (tag(detail, names.TAG_GROUP), tag(detail, names.TAG_GROUP_ROLE))
                == (settings.group.name, role)
            }
            slots = sum(member.slots for member in members.values())
            tagged[resource.name] = CapacityState(slots, members, is_modifying=True)
    return tagged


def _digest(settings: GroupSettings, states: Mapping[GroupRole, CapacityState]) -> str:
    if any(state.is_modifying for state in states.values()):
        return ""  # nothing has changed that is known
    templates = [state.template for state in states.values()]
    text = repr((settings.group.config, settings.group.control, templates))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
