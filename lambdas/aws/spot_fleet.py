"""A maintain-type Spot Fleet as the primary side.

Its target counts on-demand, too: both targets are set together, or the spot share would shrink (EC2 guide,
"Modify a Spot Fleet request").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lambdas.aws.side import GoneError, SideView
from lambdas.core.model import Group, Refusal, RefusalKind, Side, on_demand_share
from lambdas.core.refusals import classify

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_LIVE: Final = ("submitted", "active", "modifying")
HISTORY_SECONDS: Final = 300.0
"""How long an error in the fleet's history counts as a refusal: the fleet retries every few minutes."""


@dataclass(frozen=True, slots=True)
class SpotFleetService:
    """See ``CapacityService``; names are fleet request ids (``sfr-…``)."""

    client: EC2Client

    def look(self, names: Sequence[str]) -> dict[str, SideView]:
        """See ``CapacityService``: one call for the fleets, one for each page of a fleet's members."""
        views: dict[str, SideView] = {}
        described = self.client.describe_spot_fleet_requests(SpotFleetRequestIds=list(names))
        for fleet in described["SpotFleetRequestConfigs"]:
            name, state = fleet["SpotFleetRequestId"], fleet["SpotFleetRequestState"]
            if state not in _LIVE:
                raise GoneError(f"Spot Fleet {name!r} is {state}, one of {', '.join(_LIVE)} is needed")
            views[name] = SideView(fleet["SpotFleetRequestConfig"]["TargetCapacity"], self._members(name))
        for name in names:
            if name not in views:
                raise GoneError(f"Spot Fleet {name!r} does not exist")
        return views

    def refusal(self, name: str, side: Side, now: float) -> Refusal | None:
        """See ``CapacityService``: the newest error of the fleet's history.

        The history names configuration, permissions and limits. Lack of capacity shows only as a target that
        stays unfulfilled: ``lambdas.core.history`` tells it by that.
        """
        history = self.client.describe_spot_fleet_request_history(
            SpotFleetRequestId=name,
            EventType="error",
            StartTime=datetime.fromtimestamp(now - HISTORY_SECONDS, UTC),
        )
        records = history["HistoryRecords"]
        if not records:
            return None
        newest = max(records, key=lambda record: record["Timestamp"])
        information = newest["EventInformation"]
        subtype = information.get("EventSubType", "")
        message = f"{subtype}: {information.get('EventDescription', '')}"
        kind = _SUBTYPES.get(subtype, classify(message))
        return Refusal(side, kind, newest["Timestamp"].timestamp(), message)

    def set_desired(self, name: str, capacity: int, group: Group) -> None:
        """See ``CapacityService``: on-demand share and target in one call; without excess termination."""
        self.client.modify_spot_fleet_request(
            SpotFleetRequestId=name,
            TargetCapacity=capacity,
            OnDemandTargetCapacity=on_demand_share(capacity, group.base, group.spot_percentage),
            ExcessCapacityTerminationPolicy="noTermination",
        )

    def release(self, name: str, instance_ids: Sequence[str], group: Group) -> None:
        """See ``CapacityService``: the target first, or the fleet would replace whom we terminate."""
        target = self.look([name])[name].desired
        self.set_desired(name, max(0, target - len(instance_ids)), group)
        self.client.terminate_instances(InstanceIds=list(instance_ids))

    def _members(self, name: str) -> dict[str, bool]:
        pages = self.client.get_paginator("describe_spot_fleet_instances").paginate(SpotFleetRequestId=name)
        return {
            member["InstanceId"]: member.get("InstanceHealth", "healthy") == "healthy"
            for page in pages
            for member in page["ActiveInstances"]
        }


_SUBTYPES: Final[dict[str, RefusalKind]] = {
    "spotInstanceCountLimitExceeded": RefusalKind.LIMIT,
    "iamFleetRoleInvalid": RefusalKind.PERMISSION,
    "spotFleetRequestConfigurationInvalid": RefusalKind.CONFIGURATION,
    "allLaunchSpecsTemporarilyBlacklisted": RefusalKind.CONFIGURATION,
}
"""Sub-types of the fleet's error events (EC2 user guide, "Spot Fleet event types")."""
