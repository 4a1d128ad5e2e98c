"""Recorded Spot Fleet requests; only ``join`` and ``leave`` change their members.

The texts of a modification are those of a real history (kubernetes-retired/kube-aws#843).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from moto.core.utils import unix_time, utcnow
from moto.ec2.exceptions import EC2ClientError

from pulumi_on_moto.fixes.speedups.cached_responses import changed, changes_at

FLEET_TAG: Final = "aws:ec2spot:fleet-request-id"
"""The tag that AWS adds to every instance of a fleet."""
HISTORY_LIMIT: Final = 200
"""Maximum number of history records of a fleet (AWS stores 48 hours)."""


@dataclass
class FleetRequest:
    """One recorded request.

    Attributes:
        id: ``sfr-…``.
        config: ``SpotFleetRequestConfigData`` of the request, with the newest modification.
        created: time of the request.
        state: one of ``BatchState``, except ``modifying``, which depends on time: see ``shown_state``.
        former: ``config`` as it is still shown until the modification is processed.
        modified_at: time of that, None without a pending modification.
        members: moto's instances by id.
        history: as ``DescribeSpotFleetRequestHistory`` shows it.
    """

    id: str
    config: dict[str, Any]
    created: datetime
    state: str = "active"
    former: dict[str, Any] = field(default_factory=dict)
    modified_at: datetime | None = None
    members: dict[str, Any] = field(default_factory=dict)
    history: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=HISTORY_LIMIT))

    @property
    def target(self) -> int:
        """Spot and On-Demand together, in units."""
        return int(self.config["TargetCapacity"])

    @property
    def shown_state(self) -> str:
        """Its state as shown to clients now."""
        self._settle()
        return self.state if self.modified_at is None else "modifying"

    def modify(self, changes: dict[str, Any], seconds: float) -> None:
        """Modify the request; the modification is processed, and shown, after ``seconds``."""
        self.former, self.config = self.config, {**self.config, **changes}
        target = self.config["TargetCapacity"]
        text = f"Modify request received. Requested targetCapacity: {target}"
        self.record("fleetRequestChange", "modify_in_progress", text)
        self.modified_at = utcnow() + timedelta(seconds=seconds)
        changes_at(unix_time(self.modified_at))
        self._settle()

    def _settle(self) -> None:
        if self.modified_at is not None and self.modified_at <= utcnow():
            self.modified_at = None
            text = f"New targetCapacity: {self.config['TargetCapacity']}"
            self.record("fleetRequestChange", "modify_succeeded", text)

    def shown(self) -> dict[str, Any]:
        """Return the request as ``DescribeSpotFleetRequests`` shows it."""
        state = self.shown_state
        config = self.former if state == "modifying" else self.config
        members = self.members.values()
        on_demand = self.weigh(member for member in members if member.lifecycle != "spot")
        fulfilled = self.weigh(members)
        return {
            "SpotFleetRequestId": self.id,
            "SpotFleetRequestState": state,
            "ActivityStatus": "fulfilled" if fulfilled >= self.target else "pending_fulfillment",
            "CreateTime": self.created,
            "SpotFleetRequestConfig": {
                **config,
                "FulfilledCapacity": fulfilled,
                "OnDemandFulfilledCapacity": on_demand,
            },
        }

    def weigh(self, instances: Iterable[Any]) -> float:
        """Return the capacity of instances in units (API reference, ``LaunchTemplateOverrides``)."""
        weights = {
            override["InstanceType"]: float(override.get("WeightedCapacity", 1))
            for template in self.config["LaunchTemplateConfigs"]
            for override in template.get("Overrides") or []
            if "InstanceType" in override
        }
        return sum(weights.get(instance.instance_type, 1.0) for instance in instances)

    def join(self, instance: Any) -> None:
        """Add a launched instance; the target does not change."""
        self.members[instance.id] = instance
        instance.local_fleet = self
        self.record("instanceChange", "launched", describe(instance), instance.id)

    def leave(self, instance: Any) -> None:
        """Remove an instance; the target does not change."""
        self.members.pop(instance.id, None)
        self.record("instanceChange", "terminated", describe(instance), instance.id)

    def record(self, kind: str, subtype: str, description: str, instance_id: str = "") -> None:
        """Add a record in the shape of ``DescribeSpotFleetRequestHistory``."""
        changed()
        information = {"EventSubType": subtype, "EventDescription": description}
        if instance_id:
            information["InstanceId"] = instance_id
        self.history.append({"EventType": kind, "EventInformation": information, "Timestamp": utcnow()})


def describe(instance: Any) -> str:
    """Return an instance's detail in a fleet's events (EC2 user guide, "Spot Fleet event types")."""
    return json.dumps(
        {
            "instanceType": instance.instance_type,
            "image": instance.image_id,
            "productDescription": "Linux/UNIX",
            "availabilityZone": instance.placement.zone,
        },
        separators=(",", ":"),
    )


def find(backend: Any, fleet_id: str) -> FleetRequest:
    """Return a recorded request; raise EC2's error if there is none."""
    fleet = backend.spot_fleet_requests.get(fleet_id)
    if not isinstance(fleet, FleetRequest):
        raise EC2ClientError(
            "InvalidSpotFleetRequestId.NotFound", f"The spot fleet request ID '{fleet_id}' does not exist"
        )
    return fleet
