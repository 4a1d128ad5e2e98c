"""Domain model of the controller: observed state and actions, as immutable values.

Times are epoch seconds (UTC), durations seconds. Capacities and targets are in *slots*, the units in which
AWS counts a group's capacity: an instance counts as its weight, 1 without a weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, TypeAlias

from contracts.group.config import GroupConfig
from contracts.group.control import Control
from contracts.group.replacement_requests import ReplacementRequest
from contracts.group.rollout_request import NO_REQUEST, RolloutRequest
from contracts.registry.item import Progress
from contracts.stored import stored


class PurchaseOption(StrEnum):
    """The EC2 purchase option of an instance."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class GroupRole(StrEnum):
    """The role of one of the two groups of a capacity group."""

    PRIMARY = "primary"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """A capacity pool: one instance type in one Availability Zone."""

    instance_type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.instance_type}@{self.zone}"


@dataclass(frozen=True, slots=True)
class Instance:
    """A live instance of a group, as described by AWS and the worker registry.

    Attributes:
        ready_since: Time of the first heartbeat of the last of its worker slots to report; ``None`` while the
            heartbeat of a slot is missing or stale.
        deadline: Time at which AWS terminates the instance; ``None`` without a notice.
        is_standby: Whether it has booted and waits for its predecessor to release the job.
        is_described: Whether EC2 describes the instance, not only its group. If not, purchase option and age
            are guesses.
        is_terminating: Whether its group is terminating it and has launched its successor. It works until its
            deadline and no longer counts towards the desired capacity.
        slots: Its weight.
        has_malformed_records: Whether an item of its workers is invalid: it may serve or not.
        progress: Progress that its training job reports; ``None`` if it reports none.
    """

    id: str
    pool: Pool
    purchase_option: PurchaseOption
    group_role: GroupRole
    launched_at: float
    ready_since: float | None = None
    deadline: float | None = None
    is_standby: bool = False
    is_described: bool = True
    is_terminating: bool = False
    slots: int = 1
    has_malformed_records: bool = False
    progress: Progress | None = None

    @property
    def is_reporting(self) -> bool:
        """Whether its workers report that they work or wait for their job."""
        return self.ready_since is not None or self.is_standby


MIN_HOSTS_FOR_SHARED_CAUSE: Final = 2
"""Minimum unhealthy instances or hosts for a shared cause."""


def is_shared_cause(unhealthy: int, population: int) -> bool:
    """Return whether so many are unhealthy that the cause is likely shared: a majority, at least two."""
    return unhealthy >= MIN_HOSTS_FOR_SHARED_CAUSE and 2 * unhealthy > population


class LaunchFailureKind(StrEnum):
    """Reason of a launch failure. All but ``CAPACITY`` of Spot raise an alarm."""

    CAPACITY = "capacity"
    SPOT_LIMIT = "spot-limit"
    """A limit of Spot alone: On-Demand has a quota of its own."""
    LIMIT = "limit"
    PERMISSION = "permission"
    CONFIGURATION = "configuration"
    UNKNOWN = "unknown"

    @property
    def withholds_on_demand(self) -> bool:
        """Whether On-Demand capacity must not replace what the failure withholds: operators fix its cause.

        Not for an unknown failure: the maximum limits its cost, nothing limits the cost of a shortage. Not
        for a limit of Spot alone.
        """
        kinds = (LaunchFailureKind.LIMIT, LaunchFailureKind.PERMISSION, LaunchFailureKind.CONFIGURATION)
        return self in kinds


@stored(keys="as named", is_open=True)
@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """The newest failed launch of a group, with the message from AWS."""

    group_role: GroupRole
    kind: LaunchFailureKind
    failed_at: float
    message: str

    @property
    def reason(self) -> str:
        """The message for operators."""
        if self.kind is not LaunchFailureKind.UNKNOWN:
            return self.message
        return f"unknown failure: {self.message or 'AWS gives no message'}"


@dataclass(frozen=True, slots=True)
class RunBudget:
    """Maximum cost of a job's run in US dollars.

    ``on_demand`` is the hourly On-Demand price by instance type; ``spot_unit`` the hourly price, by instance
    type, to which the group's relative Spot prices refer.
    """

    dollars: float
    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot_unit: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A capacity group: its configuration, and the values that take precedence over it.

    Attributes:
        target: Slots that must be ready.
        maximum: Maximum slots of primary and fallback together.
        fallback: Whether the primary group has an On-Demand fallback group.
        reserved: Slots of the fallback that are already paid for by a reservation.
        budget: Budget of its job's run; ``None``: unlimited.
    """

    name: str
    config: GroupConfig
    target: int
    maximum: int
    fallback: bool
    reserved: int
    control: Control
    budget: RunBudget | None = None

    @classmethod
    def of(
        cls,
        name: str,
        config: GroupConfig,
        target: int,
        control: Control | None = None,
        budget: RunBudget | None = None,
    ) -> Group:
        """Return a group as it is configured, with ``target`` slots."""
        return cls(
            name,
            config,
            target,
            maximum=config.maximum,
            fallback=config.fallback is not None,
            reserved=min(config.reserved, target),  # a finished or scaled-in group keeps only its target
            control=control or Control(),
            budget=budget,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of a group: desired capacities, live instances, and requests of the health checker.

    With weights, a group may exceed its desired capacity by less than its largest instance: AWS launches
    until the desired capacity is reached. Sources: Auto Scaling user guide, "Configure an Auto Scaling group
    to use instance weights"; EC2 API reference, ``LaunchTemplateOverrides``.

    Attributes:
        launch_failures: The newest launch failures of each group: at most one known and one unknown.
        launches_succeed: Groups whose newest launch is known to have succeeded.
        modifying: Groups that accept no capacity change now (a Spot Fleet in state ``modifying``).
        eventually_consistent: Groups whose desired capacity may be stale, and no longer counts instances
            whose termination is requested but not yet visible.
        on_demand_targets: On-Demand part of the desired capacity of the groups where it is set, not computed
            by AWS (Spot Fleets). AWS replaces what falls below it, and Spot below the rest.
        listed_slots: Slots that each group counts against its desired capacity by its own list, which may
            include terminated instances.
        activities_unknown: Groups whose launch failures could not be read.
        bounds: ``MinSize`` and ``MaxSize`` of each group where AWS has them; without, 0 and the maximum.
        suspended: Suspended processes by group, by an operator or by AWS after a day of failed launches.
        unobserved: Why a group is not observed, by group: its members are those that EC2 has with its tags,
            and it accepts no change.
        missing: Those of them that do not exist, or are cancelled.
        registry_unknown: Whether the worker registry could not be read: which instances serve is unknown.
        others_report: Whether instances of other groups of the stack report; ``None`` if there are none.
        warm_pool_lacks: What is known to keep the warm pool below its size; empty at its size, ``None`` if
            that was not read.
        configuration: A digest of what operators set, the launch templates too; empty if unknown.
        spot_prices: Current Spot price by pool (as text), relative to the price of the On-Demand capacity
            that replaces it; empty if unknown.
        replacement_requests: Requests of the health checker for live instances, the oldest first.
        rollout_request: Request of the health checker during a rollout.
        on_premises_slots: Slots that on-premises workers serve now; ``None`` if they could not be read.
        read_errors: Reads that failed or returned invalid data, one line each.
        is_partial: Whether a read failed and may succeed when retried.
    """

    group: Group
    primary_desired: int
    fallback_desired: int
    instances: tuple[Instance, ...] = ()
    launch_failures: tuple[LaunchFailure, ...] = ()
    launches_succeed: frozenset[GroupRole] = frozenset()
    modifying: frozenset[GroupRole] = frozenset()
    eventually_consistent: frozenset[GroupRole] = frozenset()
    on_demand_targets: Mapping[GroupRole, int] = field(default_factory=dict)
    listed_slots: Mapping[GroupRole, int] = field(default_factory=dict)
    activities_unknown: frozenset[GroupRole] = frozenset()
    bounds: Mapping[GroupRole, tuple[int, int]] = field(default_factory=dict)
    suspended: Mapping[GroupRole, frozenset[str]] = field(default_factory=dict)
    unobserved: Mapping[GroupRole, str] = field(default_factory=dict)
    missing: frozenset[GroupRole] = frozenset()
    registry_unknown: bool = False
    others_report: bool | None = None
    warm_pool_lacks: str | None = None
    configuration: str = ""
    spot_prices: Mapping[str, float] = field(default_factory=dict)
    replacement_requests: tuple[ReplacementRequest, ...] = ()
    rollout_request: RolloutRequest = NO_REQUEST
    on_premises_slots: int | None = 0
    read_errors: tuple[str, ...] = ()
    is_partial: bool = False

    def instances_of(self, role: GroupRole) -> tuple[Instance, ...]:
        """Return the live instances of one group."""
        return tuple(i for i in self.instances if i.group_role is role)

    def desired_capacity(self, role: GroupRole) -> int:
        """Return the desired capacity of one group."""
        return self.primary_desired if role is GroupRole.PRIMARY else self.fallback_desired

    def counted_slots(self, role: GroupRole) -> int:
        """Return the minimum slots that AWS counts against the desired capacity of one group."""
        return max(self.listed_slots.get(role, 0), slots(self.active_instances(role)))

    def active_instances(self, role: GroupRole) -> list[Instance]:
        """Return the live instances of one group that the group is not terminating."""
        return [i for i in self.instances if i.group_role is role and not i.is_terminating]

    def launch_failures_of(self, role: GroupRole) -> tuple[LaunchFailure, ...]:
        """Return the newest launch failures of one group; empty if its newest launch succeeded."""
        return tuple(failure for failure in self.launch_failures if failure.group_role is role)


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Set the desired capacity of one group; never so low that AWS would select instances to terminate.

    Additional capacity is launched in ``zone`` if that has capacity, else in any zone of the group, or
    nowhere with ``only_there``; empty: in any zone.
    """

    group_role: GroupRole
    capacity: int
    reason: str
    zone: str = ""
    only_there: bool = False


@dataclass(frozen=True, slots=True)
class TerminateInstances:
    """Terminate instances of one group and lower its desired capacity by ``slots``.

    That is less than they have if more run than is desired, or if AWS is to replace them.
    ``skip_warm_pool``: an instance is defective, so none of them may return to the warm pool.
    """

    group_role: GroupRole
    instance_ids: tuple[str, ...]
    reason: str
    slots: int
    skip_warm_pool: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm for operators: a problem that more capacity cannot solve."""

    kind: str
    reason: str


Action: TypeAlias = SetDesired | TerminateInstances | Alarm


def ids(instances: Iterable[Instance]) -> tuple[str, ...]:
    """Return the instance ids, in the given order."""
    return tuple(i.id for i in instances)


_SLOTS: Final[Any] = attrgetter("slots")


def slots(instances: Iterable[Instance]) -> int:
    """Return the total slots of the instances."""
    return sum(map(_SLOTS, instances))


def slots_by_option(instances: Iterable[Instance]) -> dict[PurchaseOption, int]:
    """Return the slots of the instances by purchase option."""
    counts = dict.fromkeys(PurchaseOption, 0)
    for instance in instances:
        counts[instance.purchase_option] += instance.slots
    return counts


# The dashboard, `gpu-spot status` and the rehearsal read these names from the log.
_LOGGED_ACTIONS: Final = {"TerminateInstances": "Release"}
_LOGGED_FIELDS: Final = {"group_role": "side", "skip_warm_pool": "for_good"}


def describe(action: Action) -> dict[str, Any]:
    """Return an action as a flat record for the log."""
    fields = {_LOGGED_FIELDS.get(name, name): getattr(action, name) for name in action.__slots__}
    name = type(action).__name__
    return {"action": _LOGGED_ACTIONS.get(name, name), **fields}
