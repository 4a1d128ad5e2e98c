"""Observe a capacity group: a bounded number of AWS calls whatever its size, paged where AWS pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lambdas.aws.registry import Registry, deadline, ready_since
from lambdas.aws.settings import GroupSettings
from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.model import Instance, Market, Observation, Pool, Refusal, Side
from lambdas.core.refusals import classify

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef, InstanceTypeDef
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef as Ec2InstanceTypeDef

_LEAVING: Final = ("Terminating", "Terminated", "Detach", "Standby", "EnteringStandby", "Warmed")
_LAUNCHING: Final = "Launching a new EC2 instance"
_DOOMED: Final = ("marked-for-termination", "marked-for-stop")
ACTIVITIES: Final = 20
"""How many of a group's newest activities are read to learn whether launches are refused."""


class GoneError(LookupError):
    """An Auto Scaling group that the parameters name does not exist."""


@dataclass(frozen=True, slots=True)
class Observer:
    """Sees groups through injected clients."""

    autoscaling: AutoScalingClient
    ec2: EC2Client
    registry: Registry

    def observe(self, settings: GroupSettings, now: float) -> Observation:
        """Return what AWS and the worker registry say of the group now.

        Calls: one for the groups, one for each 1,000 instances, one for each registry page, one for the spot
        requests with a notice, one for each side's activities. Raises ``GoneError``.
        """
        groups = self._groups(settings)
        details = self._details(settings)
        slots = self.registry.slots(settings.group.name)
        announced = self._announced() if details else {}
        instances: list[Instance] = []
        for side, group in groups.items():
            for member in group["Instances"]:
                detail = details.get(member["InstanceId"])
                if detail is None or not _stays(member):
                    continue
                heard = slots.get(member["InstanceId"], [])
                expected = settings.slots.get(member["InstanceType"], 1)
                healthy = member["HealthStatus"].casefold() == "healthy"
                known = (announced.get(member["InstanceId"]), deadline(heard))
                instances.append(
                    Instance(
                        id=member["InstanceId"],
                        pool=Pool(member["InstanceType"], member["AvailabilityZone"]),
                        market=Market.SPOT if detail.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND,
                        side=side,
                        launched_at=detail["LaunchTime"].timestamp(),
                        ready_since=ready_since(heard, expected, now) if healthy else None,
                        deadline=min((d for d in known if d is not None), default=None),
                    )
                )
        return Observation(
            group=settings.group,
            primary_desired=groups[Side.PRIMARY]["DesiredCapacity"],
            fallback_desired=groups[Side.FALLBACK]["DesiredCapacity"] if Side.FALLBACK in groups else 0,
            instances=tuple(instances),
            refusals=tuple(r for side, name in settings.asg.items() if (r := self._refusal(side, name))),
        )

    def _groups(self, settings: GroupSettings) -> dict[Side, AutoScalingGroupTypeDef]:
        wanted = list(settings.asg.values())
        found: dict[Side, AutoScalingGroupTypeDef] = {}
        for page in self.autoscaling.get_paginator("describe_auto_scaling_groups").paginate(
            AutoScalingGroupNames=wanted
        ):
            for group in page["AutoScalingGroups"]:
                side = settings.side_of(group["AutoScalingGroupName"])
                if side is not None:
                    found[side] = group
        for side, name in settings.asg.items():
            if side not in found:
                raise GoneError(
                    f"Auto Scaling group {name!r} ({side} of {settings.group.name}) does not exist"
                )
        return found

    def _details(self, settings: GroupSettings) -> dict[str, Ec2InstanceTypeDef]:
        """Return the live instances by id; asked for by tag, since one unknown id fails a list of ids."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": "tag:aws:autoscaling:groupName", "Values": list(settings.asg.values())},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ],
            PaginationConfig={"PageSize": 1000},
        )
        return {
            instance["InstanceId"]: instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }

    def _announced(self) -> Mapping[str, float]:
        """Return the deadlines of marked spot instances, so that no lost event hides a notice."""
        pages = self.ec2.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "status-code", "Values": list(_DOOMED)}]
        )
        return {
            request["InstanceId"]: request["Status"]["UpdateTime"].timestamp() + NOTICE_SECONDS
            for page in pages
            for request in page["SpotInstanceRequests"]
            if "InstanceId" in request
        }

    def _refusal(self, side: Side, name: str) -> Refusal | None:
        """Return the newest launch of a side if it was refused; activities come newest first."""
        activities = self.autoscaling.describe_scaling_activities(
            AutoScalingGroupName=name, MaxRecords=ACTIVITIES
        )["Activities"]
        for activity in activities:
            if not activity["Description"].startswith(_LAUNCHING):
                continue
            if activity["StatusCode"] == "Failed":
                message = activity.get("StatusMessage", "")
                return Refusal(side, classify(message), activity["StartTime"].timestamp(), message)
            if activity["StatusCode"] == "Successful":
                return None
        return None


def _stays(member: InstanceTypeDef) -> bool:
    return not member["LifecycleState"].startswith(_LEAVING)
