"""Auto Scaling groups: a mixed-instances primary, and every fallback."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts.names import SUSPENDED_BY_STACK
from lambdas.aws.budget import UNLIMITED, Budget, BudgetError
from lambdas.aws.capacity.capacity_service import (
    CapacityChange,
    CapacityState,
    GroupNotFoundError,
    Launches,
    Member,
    NotTerminatedError,
    ZoneUnavailableError,
)
from lambdas.core.launch_failures import classify, find_kind
from lambdas.core.model import Group, GroupRole, LaunchFailure, LaunchFailureKind

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import ActivityTypeDef, AutoScalingGroupTypeDef

_IN_SERVICE: Final = "InService"
_TERMINATING: Final = ("Terminating", "Terminating:Wait")
"""A Spot instance with an interruption notice enters its termination hook at once, and works until its end.

Source: Auto Scaling guide, "Amazon EC2 Auto Scaling lifecycle hooks".
"""
_NOT_SERVING: Final = (
    *("Terminating:Proceed", "Terminating:Retained", "Terminated"),
    *("Detach", "Standby", "EnteringStandby", "Warmed"),
)
_LAUNCHING: Final = "Launching a new EC2 instance"
_WARM_POOL_LAUNCH: Final = "into warm pool"
"""A launch into the warm pool does not show whether a launch into service succeeds. Source: logs of users."""
_FAILED: Final = ("Failed", "Cancelled")
"""``Cancelled`` without a known message counts as a lack of capacity."""
_THROTTLED: Final = ("Throttling", "ThrottlingException", "RequestLimitExceeded")
_MAX_NAMES: Final = 100
"""Source: Auto Scaling API reference, ``DescribeAutoScalingGroups``."""
_MANY: Final = 10
"""Terminations above which a scale-in is preferred: each is a call of its own, a scale-in has one for 50."""
_MAX_PROTECTION_BATCH: Final = 50
"""Maximum instances in a call. Source: Auto Scaling API reference, ``SetInstanceProtection``."""
_IN_PROGRESS: Final = "IdempotentCallInProgress"
"""The call before with the same token will complete: "Retry the request with the same client token"."""
_TOKEN_SECONDS: Final = 600
"""Time in which a repeated launch is the same request; later an equal one is another."""
MAX_ACTIVITIES: Final = 20
"""Newest activities of a group that are read to find launch failures."""


@dataclass(frozen=True, slots=True)
class AutoScalingService:
    """See ``CapacityService``; names are names of Auto Scaling groups."""

    is_eventually_consistent: ClassVar[bool] = False
    client: AutoScalingClient
    clock: Callable[[], float] = time.time

    def describe(self, names: Sequence[str]) -> dict[str, CapacityState | GroupNotFoundError]:
        """See ``CapacityService``; makes one call for each 100 groups."""
        states: dict[str, CapacityState | GroupNotFoundError] = {
            name: GroupNotFoundError(f"Auto Scaling group {name!r} does not exist") for name in names
        }
        for group in self._groups(names):
            members = {
                member["InstanceId"]: Member(
                    instance_type=member.get("InstanceType", ""),
                    zone=member["AvailabilityZone"],
                    is_healthy=member["HealthStatus"].casefold() == "healthy",
                    is_terminating=member["LifecycleState"] in _TERMINATING,
                    # A string; absent in groups without weights.
                    slots=int(member.get("WeightedCapacity", 1)),
                )
                for member in group["Instances"]
                if not member["LifecycleState"].startswith(_NOT_SERVING)
            }
            suspended = {process["ProcessName"] for process in group.get("SuspendedProcesses", ())}
            states[group["AutoScalingGroupName"]] = CapacityState(
                group["DesiredCapacity"],
                members,
                _bounds(group),
                # AWS suspends launches after a day without a success.
                # Source: Auto Scaling guide, "Suspend and resume processes".
                suspended=frozenset(suspended - {*SUSPENDED_BY_STACK}),
                template=str(group.get("MixedInstancesPolicy") or group.get("LaunchTemplate") or ""),
                warm=group.get("WarmPoolSize", 0),
                warm_wanted=_warm_pool_size(group),
            )
        return states

    def _activities(self, name: str) -> list[ActivityTypeDef]:
        """Return the newest activities, the newest first; one call."""
        response = self.client.describe_scaling_activities(
            AutoScalingGroupName=name, MaxRecords=MAX_ACTIVITIES
        )
        return response["Activities"]

    def launch_failures(self, name: str, role: GroupRole, now: float) -> Launches:
        """See ``CapacityService``; makes one call, which returns the newest activities first."""
        for activity in self._activities(name):
            description = activity["Description"]
            if not description.startswith(_LAUNCHING) or _WARM_POOL_LAUNCH in description:
                continue
            started_at = activity["StartTime"].timestamp()
            if activity["StatusCode"] in _FAILED:
                message = activity.get("StatusMessage", "")
                unknown = (
                    LaunchFailureKind.CAPACITY if activity["StatusCode"] == "Cancelled" else classify(message)
                )
                return Launches((LaunchFailure(role, find_kind(message) or unknown, started_at, message),))
            if activity["StatusCode"] == "Successful":
                return Launches(succeeded=True)
        return Launches()

    def warm_pool_failure(self, name: str) -> str | None:
        """Return why the newest launch into the warm pool failed, if it did; ``None`` without any."""
        for activity in self._activities(name):
            if _WARM_POOL_LAUNCH in activity["Description"]:
                if activity["StatusCode"] in _FAILED:
                    return activity.get("StatusMessage", "") or "AWS gives no message"
                if activity["StatusCode"] == "Successful":
                    return ""
        return None

    def apply(self, name: str, change: CapacityChange, group: Group, budget: Budget = UNLIMITED) -> None:
        """See ``CapacityService``; makes one call per terminated instance.

        Instances that may return to a warm pool, and many at once, are removed by scale-in instead, and
        capacity for a zone is launched there.
        """
        if change.zone and change.is_increase and not change.to_terminate:
            self._launch_in_zone(name, change)
            return
        if change.to_terminate and self._should_scale_in(name, change):
            self._scale_in(name, change)
            return
        if change.capacity != change.current:
            self._set_desired(name, change.capacity)
        not_terminated: dict[str, Exception] = {}
        to_lower, are_known = change.freed_slots, True
        for number, instance_id in enumerate(change.to_terminate):
            if budget.is_over:
                remaining = change.to_terminate[number:]
                not_terminated |= dict.fromkeys(
                    remaining, BudgetError(f"{len(remaining)} are left for the next pass")
                )
                break
            # Without a decrement what runs above the desired capacity ends, and the rest is replaced.
            size = change.sizes.get(instance_id, 1)
            decrements = size <= to_lower
            try:
                self.client.terminate_instance_in_auto_scaling_group(
                    InstanceId=instance_id, ShouldDecrementDesiredCapacity=decrements
                )
                to_lower -= size * decrements
            except (BotoCoreError, ClientError) as error:
                details = error.response["Error"] if isinstance(error, ClientError) else {}
                # A missing instance is terminated already.
                if "not found" in details.get("Message", "").casefold():
                    are_known = False
                else:
                    not_terminated[instance_id] = error
                if not details or details["Code"] in _THROTTLED:
                    # The other calls would not be answered, either, and take up the rest of the pass.
                    not_terminated |= dict.fromkeys(change.to_terminate[number:], error)
                    break
        if to_lower and are_known and not not_terminated:
            self._set_desired(name, change.final_capacity)  # the weights did not add up to it
        if not_terminated:
            raise NotTerminatedError(tuple(not_terminated), next(iter(not_terminated.values())))

    def _launch_in_zone(self, name: str, change: CapacityChange) -> None:
        """Launch the added capacity in the change's zone, or in all zones of the group if it has none.

        The call does both, and raises the desired capacity in either case. If it fails or its response is
        lost, the desired capacity is set here. With ``only_there`` a launch that fails changes nothing.
        Source: Auto Scaling API reference, ``LaunchInstances``, ``RetryStrategy``.
        """
        error_text = ""
        try:
            response = self.client.launch_instances(
                AutoScalingGroupName=name,
                RequestedCapacity=change.capacity - change.current,
                AvailabilityZones=[change.zone],
                ClientToken=self._token(name, change),
                RetryStrategy="none" if change.only_there else "retry-with-group-configuration",
            )
            errors = [f"{e.get('ErrorCode')}: {e.get('ErrorMessage')}" for e in response.get("Errors", ())]
            error_text = "; ".join(errors)
        # botocore has the operation since 1.40.76.
        except (AttributeError, BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == _IN_PROGRESS:
                raise
            error_text = str(error)
        if change.only_there:
            if error_text and classify(error_text) is not LaunchFailureKind.CAPACITY:
                raise ZoneUnavailableError(f"{name!r} cannot try {change.zone}: {error_text}")
            return
        if any(group["DesiredCapacity"] < change.capacity for group in self._groups([name])):
            self._set_desired(name, change.capacity)
        if error_text:
            raise ZoneUnavailableError(f"{name!r} launches in any zone, not in {change.zone}: {error_text}")

    def _token(self, name: str, change: CapacityChange) -> str:
        """Return a token that is the same if a failed pass is repeated: two would launch twice."""
        period = int(self.clock() // _TOKEN_SECONDS)
        parts = (name, change.zone, change.current, change.capacity, period)
        return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(map(str, parts))))

    def _should_scale_in(self, name: str, change: CapacityChange) -> bool:
        """Return whether a scale-in removes exactly the given instances, and is the better way.

        It is for instances that return to the warm pool, and for many without one. A scale-in does not remove
        protected instances, and protection starts in service. No documentation says that
        ``TerminateInstanceInAutoScalingGroup`` returns instances to the pool.
        Source: Auto Scaling guide, "Use instance scale-in protection".
        """
        is_many = len(change.to_terminate) > _MANY
        if change.skip_warm_pool and not is_many:
            return False
        for group in self._groups([name]):
            policy = group.get("WarmPoolConfiguration", {}).get("InstanceReusePolicy", {})
            returns = policy.get("ReuseOnScaleIn", False)
            not_counted = (*_TERMINATING, *_NOT_SERVING)
            counted = [m for m in group["Instances"] if not m["LifecycleState"].startswith(not_counted)]
            remaining = [member for member in counted if member["InstanceId"] not in change.to_terminate]
            return (
                (not change.skip_warm_pool if returns else is_many)
                and group["DesiredCapacity"] == change.capacity == len(counted)
                and len(remaining) == len(counted) - len(change.to_terminate)
                and all(m["LifecycleState"] == _IN_SERVICE and m["ProtectedFromScaleIn"] for m in remaining)
            )
        return False

    def _groups(self, names: Sequence[str]) -> list[AutoScalingGroupTypeDef]:
        paginator = self.client.get_paginator("describe_auto_scaling_groups")
        return [
            group
            for start in range(0, len(names), _MAX_NAMES)
            for page in paginator.paginate(
                AutoScalingGroupNames=names[start : start + _MAX_NAMES],
                PaginationConfig={"PageSize": _MAX_NAMES},
            )
            for group in page["AutoScalingGroups"]
        ]

    def _scale_in(self, name: str, change: CapacityChange) -> None:
        for start in range(0, len(change.to_terminate), _MAX_PROTECTION_BATCH):
            self.client.set_instance_protection(
                AutoScalingGroupName=name,
                InstanceIds=change.to_terminate[start : start + _MAX_PROTECTION_BATCH],
                ProtectedFromScaleIn=False,
            )
        self._set_desired(name, change.final_capacity)

    def _set_desired(self, name: str, capacity: int) -> None:
        self.client.set_desired_capacity(
            AutoScalingGroupName=name, DesiredCapacity=capacity, HonorCooldown=False
        )


def _bounds(group: Mapping[str, Any]) -> tuple[int, int] | None:
    return (group["MinSize"], group["MaxSize"]) if "MaxSize" in group else None


def _warm_pool_size(group: AutoScalingGroupTypeDef) -> int | None:
    """Return how many instances the warm pool is to have; ``None`` without one, or while it is deleted.

    ``MaxGroupPreparedCapacity`` counts the instances in service as well; without it ``MaxSize`` does.
    Source: Auto Scaling API reference, ``WarmPoolConfiguration``.
    """
    pool = group.get("WarmPoolConfiguration", {})
    if "PoolState" not in pool or pool.get("Status") == "PendingDelete":
        return None
    prepared = pool.get("MaxGroupPreparedCapacity", group["MaxSize"])
    return max(pool.get("MinSize", 0), prepared - group["DesiredCapacity"])
