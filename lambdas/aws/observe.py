"""Observe a capacity group: a bounded number of AWS calls whatever its size, paged where AWS pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from lambdas.aws.registry import RegistryReader, deadline, ready_since, standing_by
from lambdas.aws.settings import GroupSettings
from lambdas.aws.side import CapacityService, SideView
from lambdas.core import names
from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.model import Instance, Market, Observation, Pool, Side

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

_DOOMED: Final = ("marked-for-termination", "marked-for-stop")


@dataclass(frozen=True, slots=True)
class Observer:
    """Sees the groups of one stack through injected clients; ``capacity`` by kind of side."""

    stack: str
    capacity: Mapping[str, CapacityService]
    ec2: EC2Client
    registry: RegistryReader

    def observe(self, settings: GroupSettings, now: float) -> Observation:
        """Return what AWS and the worker registry say of the group now.

        Calls: one for the groups, one for each 1,000 instances, one for each registry page, one for the spot
        requests with a notice, one for each side's refusals; a fleet's members take one for each 1,000 more.
        Raises ``GoneError``.
        """
        sides = self._sides(settings)
        details = self._details(settings.group.name)
        workers = self.registry.workers(settings.group.name)
        announced = self._announced() if details else {}
        instances: list[Instance] = []
        for side, view in sides.items():
            for instance_id, healthy in view.members.items():
                detail = details.get(instance_id)
                if detail is None:
                    continue
                heard = workers.get(instance_id, [])
                expected = settings.slots.get(detail["InstanceType"], 1)
                known = (announced.get(instance_id), deadline(heard))
                instances.append(
                    Instance(
                        id=instance_id,
                        pool=_pool(detail["InstanceType"], detail["Placement"]["AvailabilityZone"]),
                        market=Market.SPOT if detail.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND,
                        side=side,
                        launched_at=detail["LaunchTime"].timestamp(),
                        ready_since=ready_since(heard, expected, now) if healthy else None,
                        deadline=min((d for d in known if d is not None), default=None),
                        standing_by=healthy and standing_by(heard, now),
                    )
                )
        refusals = (self.capacity[s.kind].refusal(s.name, side, now) for side, s in settings.sides.items())
        return Observation(
            group=settings.group,
            primary_desired=sides[Side.PRIMARY].desired,
            fallback_desired=sides[Side.FALLBACK].desired if Side.FALLBACK in sides else 0,
            instances=tuple(instances),
            refusals=tuple(refusal for refusal in refusals if refusal is not None),
        )

    def _sides(self, settings: GroupSettings) -> dict[Side, SideView]:
        views: dict[str, SideView] = {}
        for kind in sorted({side.kind for side in settings.sides.values()}):
            views |= self.capacity[kind].look([s.name for s in settings.sides.values() if s.kind == kind])
        return {side: views[handle.name] for side, handle in settings.sides.items()}

    def _details(self, group: str) -> dict[str, InstanceTypeDef]:
        """Return the live instances by id; asked for by tag, since one unknown id fails a list of ids."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{names.TAG_STACK}", "Values": [self.stack]},
                {"Name": f"tag:{names.TAG_GROUP}", "Values": [group]},
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


@cache
def _pool(instance_type: str, zone: str) -> Pool:
    """Return one object for each pool: thousands of instances share it, and compare by identity."""
    return Pool(instance_type, zone)
