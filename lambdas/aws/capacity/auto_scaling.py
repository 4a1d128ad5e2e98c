"""Auto Scaling groups: a mixed-instances primary, and every fallback."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts.names import SUSPENDED_BY_US
from lambdas.aws.capacity.capacity_service import (
    GoneError,
    Member,
    NotPlacedError,
    NotReleasedError,
    Order,
    SideView,
)
from lambdas.core.launch_failures import REFUSAL_SECONDS, classify, known
from lambdas.core.model import Group, Refusal, RefusalKind, Side

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

_IN_SERVICE: Final = "InService"
_GIVEN_UP: Final = ("Terminating", "Terminating:Wait")
"""At the final notice of a spot instance the group calls its termination hook at once: it works on until the
hook ends (Auto Scaling guide, "Amazon EC2 Auto Scaling lifecycle hooks")."""
_LEFT: Final = (
    *("Terminating:Proceed", "Terminating:Retained", "Terminated"),
    *("Detach", "Standby", "EnteringStandby", "Warmed"),
)
_LAUNCHING: Final = "Launching a new EC2 instance"
_REFILL: Final = "into warm pool"
"""A launch that only fills the pool up again says nothing of one that is wanted now (from others' logs)."""
_REFUSED: Final = ("Failed", "Cancelled")
"""``Cancelled`` is a launch that was given up; without a known text it counts like lack of capacity."""
_THROTTLED: Final = ("Throttling", "ThrottlingException", "RequestLimitExceeded")
_MOST_AT_ONCE: Final = 50
"""How many instances SetInstanceProtection takes (its API reference)."""
ACTIVITIES: Final = 20
"""How many of a group's newest activities are read to learn whether launches are refused."""


@dataclass(frozen=True, slots=True)
class AutoScalingService:
    """See ``CapacityService``; names are those of Auto Scaling groups."""

    shows_late: ClassVar[bool] = False
    client: AutoScalingClient

    def look(self, names: Sequence[str]) -> dict[str, SideView]:
        """See ``CapacityService``: one call."""
        views: dict[str, SideView] = {}
        for group in self._groups(names):
            members = {
                member["InstanceId"]: Member(
                    instance_type=member.get("InstanceType", ""),
                    zone=member["AvailabilityZone"],
                    healthy=member["HealthStatus"].casefold() == "healthy",
                    given_up=member["LifecycleState"] in _GIVEN_UP,
                    # A text; only groups with weights have it.
                    slots=int(member.get("WeightedCapacity", 1)),
                )
                for member in group["Instances"]
                if not member["LifecycleState"].startswith(_LEFT)
            }
            suspended = {process["ProcessName"] for process in group.get("SuspendedProcesses", ())}
            views[group["AutoScalingGroupName"]] = SideView(
                group["DesiredCapacity"],
                members,
                # AWS itself suspends launches after a day without a success (Auto Scaling guide, "Suspend and
                # resume processes").
                suspended=frozenset(suspended - {*SUSPENDED_BY_US}),
            )
        for name in names:
            if name not in views:
                raise GoneError(f"Auto Scaling group {name!r} does not exist")
        return views

    def refusal(self, name: str, side: Side, now: float) -> Refusal | None:
        """See ``CapacityService``: one call; activities come newest first."""
        activities = self.client.describe_scaling_activities(AutoScalingGroupName=name, MaxRecords=ACTIVITIES)
        for activity in activities["Activities"]:
            if not activity["Description"].startswith(_LAUNCHING) or _REFILL in activity["Description"]:
                continue
            at = activity["StartTime"].timestamp()
            if activity["StatusCode"] in _REFUSED and at > now - REFUSAL_SECONDS:
                message = activity.get("StatusMessage", "")
                unknown = RefusalKind.CAPACITY if activity["StatusCode"] == "Cancelled" else classify(message)
                return Refusal(side, known(message) or unknown, at, message)
            if activity["StatusCode"] in ("Successful", *_REFUSED):
                return None
        return None

    def move(self, name: str, order: Order, group: Group) -> None:
        """See ``CapacityService``: one call an instance, which chooses the victims.

        Where a warm pool takes them back, and may, they go by scale-in instead; a zone's are launched there.
        """
        if order.zone and order.raises and not order.going:
            self._launch_in_zone(name, order)
            return
        if order.going and not order.for_good and self._takes_back(name, order):
            self._scale_in(name, order)
            return
        if order.capacity != order.before:
            self._set_desired(name, order.capacity)
        standing: dict[str, ClientError] = {}
        for number, instance_id in enumerate(order.going):
            try:
                self.client.terminate_instance_in_auto_scaling_group(
                    InstanceId=instance_id, ShouldDecrementDesiredCapacity=True
                )
            except ClientError as error:
                told = error.response["Error"]
                # Gone already: what was wanted is so, and the next look sees it.
                if "not found" not in told.get("Message", "").casefold():
                    standing[instance_id] = error
                if told["Code"] in _THROTTLED:
                    # The others would wait as long, and then the pass is over.
                    standing |= dict.fromkeys(order.going[number:], error)
                    break
        if standing:
            raise NotReleasedError(tuple(standing), next(iter(standing.values())))

    def _launch_in_zone(self, name: str, order: Order) -> None:
        """Launch what is added in the order's zone; where that has none the group seeks it in all of its own.

        AWS does both, and raises the desired capacity in either case (API reference, LaunchInstances, retry
        strategy); what the call did not do is done here, be it refused as a whole or lost on the way.
        """
        missed = ""
        try:
            answer = self.client.launch_instances(
                AutoScalingGroupName=name,
                RequestedCapacity=order.capacity - order.before,
                AvailabilityZones=[order.zone],
                ClientToken=str(uuid.uuid4()),  # of one call and its retries
                RetryStrategy="retry-with-group-configuration",
            )
            told = [f"{e.get('ErrorCode')}: {e.get('ErrorMessage')}" for e in answer.get("Errors", ())]
            missed = "; ".join(told)
        except (BotoCoreError, ClientError) as error:
            missed = str(error)
        if any(group["DesiredCapacity"] < order.capacity for group in self._groups([name])):
            self._set_desired(name, order.capacity)
        if missed:
            raise NotPlacedError(f"{name!r} launches wherever it can, not in {order.zone}: {missed}")

    def _takes_back(self, name: str, order: Order) -> bool:
        """Say whether a scale-in takes exactly who is to go, and returns them to the group's warm pool.

        It ends nobody protected, and protection begins in service (Auto Scaling guide, "Use instance scale-in
        protection"); nothing says that TerminateInstanceInAutoScalingGroup returns anybody.
        """
        for group in self._groups([name]):
            policy = group.get("WarmPoolConfiguration", {}).get("InstanceReusePolicy", {})
            counted = [
                m for m in group["Instances"] if not m["LifecycleState"].startswith((*_GIVEN_UP, *_LEFT))
            ]
            others = [member for member in counted if member["InstanceId"] not in order.going]
            return (
                policy.get("ReuseOnScaleIn", False)
                and group["DesiredCapacity"] == order.capacity == len(counted)
                and len(others) == len(counted) - len(order.going)
                and all(m["LifecycleState"] == _IN_SERVICE and m["ProtectedFromScaleIn"] for m in others)
            )
        return False

    def _groups(self, names: Sequence[str]) -> list[AutoScalingGroupTypeDef]:
        pages = self.client.get_paginator("describe_auto_scaling_groups").paginate(
            AutoScalingGroupNames=names
        )
        return [group for page in pages for group in page["AutoScalingGroups"]]

    def _scale_in(self, name: str, order: Order) -> None:
        for start in range(0, len(order.going), _MOST_AT_ONCE):
            self.client.set_instance_protection(
                AutoScalingGroupName=name,
                InstanceIds=order.going[start : start + _MOST_AT_ONCE],
                ProtectedFromScaleIn=False,
            )
        self._set_desired(name, order.after)

    def _set_desired(self, name: str, capacity: int) -> None:
        self.client.set_desired_capacity(
            AutoScalingGroupName=name, DesiredCapacity=capacity, HonorCooldown=False
        )
