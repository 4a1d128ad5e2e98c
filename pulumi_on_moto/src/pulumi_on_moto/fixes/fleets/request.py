"""Recorded Spot Fleet requests, whose members come and go by ``join`` and ``leave`` alone."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError

from pulumi_on_moto.fixes.speedups.answers import changed

FLEET_TAG: Final = "aws:ec2spot:fleet-request-id"
"""What AWS tags every instance of a fleet with."""
HISTORY_KEPT: Final = 200
"""Records remembered for each fleet (AWS keeps 48 hours of them)."""


@dataclass
class FleetRequest:
    """One recorded request; ``config`` is ``SpotFleetRequestConfigData`` as it was given."""

    id: str
    config: dict[str, Any]
    created: datetime
    state: str = "active"
    members: dict[str, Any] = field(default_factory=dict)
    history: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=HISTORY_KEPT))

    @property
    def target(self) -> int:
        """Spot and on-demand instances together."""
        return int(self.config["TargetCapacity"])

    def shown(self) -> dict[str, Any]:
        """Return the request as ``DescribeSpotFleetRequests`` shows it."""
        on_demand = sum(instance.lifecycle != "spot" for instance in self.members.values())
        fulfilled = len(self.members)
        return {
            "SpotFleetRequestId": self.id,
            "SpotFleetRequestState": self.state,
            "ActivityStatus": "fulfilled" if fulfilled >= self.target else "pending_fulfillment",
            "CreateTime": self.created,
            "SpotFleetRequestConfig": {
                **self.config,
                "FulfilledCapacity": float(fulfilled),
                "OnDemandFulfilledCapacity": float(on_demand),
            },
        }

    def join(self, instance: Any) -> None:
        """Take a launched instance in: the target stays as it is."""
        self.members[instance.id] = instance
        instance.local_fleet = self
        self.record("instanceChange", "launched", describe(instance), instance.id)

    def leave(self, instance: Any) -> None:
        """Let an instance go: the target stays as it is."""
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
    """Return what a fleet's events say of an instance (EC2 user guide, "Spot Fleet event types")."""
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
    found = backend.spot_fleet_requests.get(fleet_id)
    if not isinstance(found, FleetRequest):
        raise EC2ClientError(
            "InvalidSpotFleetRequestId.NotFound", f"The spot fleet request ID '{fleet_id}' does not exist"
        )
    return found
