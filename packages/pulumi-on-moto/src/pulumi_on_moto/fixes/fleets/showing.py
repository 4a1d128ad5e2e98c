"""Describe operations of Spot Fleets: requests, members and history, with pagination."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.responses.spot_fleets import SpotFleets

from pulumi_on_moto.fixes import Patches
from pulumi_on_moto.fixes.fleets.request import find

_PAGE: Final = 1000
"""Members or history records per page, the default and the maximum."""


def _describe_requests(response: SpotFleets) -> ActionResult:
    requested_ids = response._get_param("SpotFleetRequestIds", [])
    fleets = [find(response.ec2_backend, fleet_id) for fleet_id in requested_ids] or list(
        response.ec2_backend.spot_fleet_requests.values()
    )
    shown = []
    for fleet in fleets:
        tags = response.ec2_backend.tags.get(fleet.id, {})
        shown.append({**fleet.shown(), "Tags": [{"Key": key, "Value": tags[key]} for key in tags]})
    return _page(response, "SpotFleetRequestConfigs", shown, {})


def _describe_instances(response: SpotFleets) -> ActionResult:
    fleet = find(response.ec2_backend, response._get_param("SpotFleetRequestId"))
    members = []
    for instance in fleet.members.values():
        member = {
            "InstanceId": instance.id,
            "InstanceType": instance.instance_type,
            "InstanceHealth": "healthy",
        }
        if getattr(instance, "spot_instance_request_id", None):
            member["SpotInstanceRequestId"] = instance.spot_instance_request_id
        members.append(member)
    return _page(response, "ActiveInstances", members, {"SpotFleetRequestId": fleet.id})


def _describe_history(response: SpotFleets) -> ActionResult:
    fleet = find(response.ec2_backend, response._get_param("SpotFleetRequestId"))
    kind, start = response._get_param("EventType"), _naive(response._get_param("StartTime"))
    records = [
        record
        for record in fleet.history
        if kind in (None, record["EventType"]) and _naive(record["Timestamp"]) >= start
    ]
    extras = {"SpotFleetRequestId": fleet.id, "StartTime": start, "LastEvaluatedTime": utcnow()}
    return _page(response, "HistoryRecords", records, extras)


def _page(response: SpotFleets, key: str, items: list[Any], extras: Mapping[str, Any]) -> ActionResult:
    start = int(response._get_param("NextToken") or 0)
    size = min(response._get_int_param("MaxResults") or _PAGE, _PAGE)
    more = len(items) > start + size
    return ActionResult(
        {key: items[start : start + size], "NextToken": str(start + size) if more else None, **extras}
    )


def _naive(moment: datetime | str) -> datetime:
    """Return a time in UTC without its zone, as moto's ``utcnow`` returns it."""
    parsed = datetime.fromisoformat(moment.replace("Z", "+00:00")) if isinstance(moment, str) else moment
    return parsed.replace(tzinfo=None)


PATCHES: Final[Patches] = (
    (SpotFleets, "describe_spot_fleet_requests", _describe_requests),
    (SpotFleets, "describe_spot_fleet_instances", _describe_instances),
    (SpotFleets, "describe_spot_fleet_request_history", _describe_history),
)
