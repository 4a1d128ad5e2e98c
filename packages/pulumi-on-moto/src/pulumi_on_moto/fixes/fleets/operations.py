"""Operations of Spot Fleets: request, modify, cancel, without launches; describe, in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.spot_fleets import SpotFleets
from moto.ec2.utils import random_spot_fleet_request_id

from pulumi_on_moto.fixes import Patches, local, naive, page, set_local
from pulumi_on_moto.fixes.ec2.terminations import released
from pulumi_on_moto.fixes.fleets.request import FleetRequest, find

_ENDED: Final = ("cancelled_running", "cancelled_terminating")
_PAGE: Final = 1000
"""Requests, members or records of the history per page, the default and the maximum."""
_MODIFIABLE: Final = ("TargetCapacity", "OnDemandTargetCapacity", "ExcessCapacityTerminationPolicy")


def _request(response: SpotFleets) -> ActionResult:
    config: dict[str, Any] = dict(response._get_param("SpotFleetRequestConfig", {}))
    if bool(config.get("LaunchTemplateConfigs")) == bool(config.get("LaunchSpecifications")):
        raise _refused("set exactly one of LaunchTemplateConfigs and LaunchSpecifications")
    if config.get("LaunchSpecifications"):
        raise NotImplementedError("LaunchSpecifications are not emulated, LaunchTemplateConfigs are")
    for key, default in (("Type", "maintain"), ("AllocationStrategy", "lowestPrice")):
        config.setdefault(key, default)
    config.setdefault("OnDemandTargetCapacity", 0)
    _check_targets(config)
    fleet = FleetRequest(random_spot_fleet_request_id(), config, utcnow())
    for specification in config.pop("TagSpecifications", []):
        if specification.get("ResourceType") != "spot-fleet-request":
            raise _refused(f"tags must be for spot-fleet-request, not {specification.get('ResourceType')}")
        tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        response.ec2_backend.create_tags([fleet.id], tags)
    response.ec2_backend.spot_fleet_requests[fleet.id] = fleet
    fleet.record("fleetRequestChange", "active", "")
    return ActionResult({"SpotFleetRequestId": fleet.id})


def _modify(response: SpotFleets) -> ActionResult:
    fleet = find(response.ec2_backend, response._get_param("SpotFleetRequestId"))
    if fleet.config["Type"] != "maintain":
        raise _not_modifiable(fleet, "is not a modifiable fleet request type.")
    if fleet.shown_state != "active":
        raise _not_modifiable(fleet, f"is not in a modifiable state: {fleet.shown_state}.")
    changes = {key: value for key in _MODIFIABLE if (value := response._get_param(key)) is not None}
    config = {**fleet.config, **changes}
    _check_targets(config)
    excess = fleet.weigh(fleet.members.values()) > int(config["TargetCapacity"])
    if config.get("ExcessCapacityTerminationPolicy") != "noTermination" and excess:
        raise NotImplementedError("excess capacity is not terminated locally: use the policy noTermination")
    fleet.modify(changes, local(response.ec2_backend, "modifying_seconds", 0.0))
    return ActionResult({"Return": True})


def modifying_takes(backend: Any, seconds: float) -> None:
    """Set how long fleets are ``modifying`` after a modification, in moto's EC2 backend."""
    set_local(backend, "modifying_seconds", seconds)


def _not_modifiable(fleet: FleetRequest, reason: str) -> EC2ClientError:
    """Return AWS's error (jenkinsci/ec2-fleet-plugin#131; for the state only the code is known, #159)."""
    return EC2ClientError("FleetNotInModifiableState", f"Fleet Request: {fleet.id} {reason}")


def _cancel(response: SpotFleets) -> ActionResult:
    terminate = response._get_bool_param("TerminateInstances")
    done = []
    for fleet_id in response._get_param("SpotFleetRequestIds", []):
        fleet = find(response.ec2_backend, fleet_id)
        before, fleet.state = fleet.state, _ENDED[bool(terminate)]
        fleet.record("fleetRequestChange", fleet.state, "")
        if terminate:
            members = list(fleet.members)
            response.ec2_backend.terminate_instances(members)
            released(response.ec2_backend, members)
        done.append(
            {
                "SpotFleetRequestId": fleet_id,
                "CurrentSpotFleetRequestState": fleet.state,
                "PreviousSpotFleetRequestState": before,
            }
        )
    return ActionResult({"SuccessfulFleetRequests": done, "UnsuccessfulFleetRequests": []})


def _check_targets(config: Mapping[str, Any]) -> None:
    target, on_demand = int(config["TargetCapacity"]), int(config["OnDemandTargetCapacity"])
    if not 0 <= on_demand <= target:
        raise _refused(f"0 ≤ OnDemandTargetCapacity {on_demand} ≤ TargetCapacity {target} does not hold")


def _refused(problem: str) -> EC2ClientError:
    return EC2ClientError("InvalidSpotFleetRequestConfig", problem)


def _describe_requests(response: SpotFleets) -> ActionResult:
    requested_ids = response._get_param("SpotFleetRequestIds", [])
    fleets = [find(response.ec2_backend, fleet_id) for fleet_id in requested_ids] or list(
        response.ec2_backend.spot_fleet_requests.values()
    )
    shown = []
    for fleet in fleets:
        tags = response.ec2_backend.tags.get(fleet.id, {})
        shown.append({**fleet.shown(), "Tags": [{"Key": key, "Value": tags[key]} for key in tags]})
    return ActionResult(page(response, "SpotFleetRequestConfigs", shown, "MaxResults", _PAGE))


def _describe_instances(response: SpotFleets) -> ActionResult:
    fleet = find(response.ec2_backend, response._get_param("SpotFleetRequestId"))
    members = []
    for instance in fleet.members.values():
        kind = {"InstanceType": instance.instance_type}
        member = {"InstanceId": instance.id, **kind, "InstanceHealth": "healthy"}
        if getattr(instance, "spot_instance_request_id", None):
            member["SpotInstanceRequestId"] = instance.spot_instance_request_id
        members.append(member)
    shown = page(response, "ActiveInstances", members, "MaxResults", _PAGE)
    return ActionResult({"SpotFleetRequestId": fleet.id, **shown})


def _describe_history(response: SpotFleets) -> ActionResult:
    fleet = find(response.ec2_backend, response._get_param("SpotFleetRequestId"))
    kind, start = response._get_param("EventType"), naive(response._get_param("StartTime"))
    records = [
        record
        for record in fleet.history
        if kind in (None, record["EventType"]) and record["Timestamp"] >= start
    ]
    shown = page(response, "HistoryRecords", records, "MaxResults", _PAGE)
    times = {"StartTime": start, "LastEvaluatedTime": utcnow()}
    return ActionResult({"SpotFleetRequestId": fleet.id, **times, **shown})


PATCHES: Final[Patches] = (
    (SpotFleets, "request_spot_fleet", _request),
    (SpotFleets, "modify_spot_fleet_request", _modify),
    (SpotFleets, "cancel_spot_fleet_requests", _cancel),
    (SpotFleets, "describe_spot_fleet_requests", _describe_requests),
    (SpotFleets, "describe_spot_fleet_instances", _describe_instances),
    (SpotFleets, "describe_spot_fleet_request_history", _describe_history),
)
