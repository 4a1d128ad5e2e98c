"""Request, modify and cancel Spot Fleets, without launching or terminating instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.spot_fleets import SpotFleets
from moto.ec2.utils import random_spot_fleet_request_id

from pulumi_on_moto.fixes import Patches
from pulumi_on_moto.fixes.ec2.terminations import released
from pulumi_on_moto.fixes.fleets.request import FleetRequest, find

_ENDED: Final = ("cancelled_running", "cancelled_terminating")
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
    fleet.modify(changes, getattr(response.ec2_backend, "local_modifying_seconds", 0.0))
    return ActionResult({"Return": True})


def modifying_takes(backend: Any, seconds: float) -> None:
    """Set how long fleets are ``modifying`` after a modification, in moto's EC2 backend."""
    backend.local_modifying_seconds = seconds


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


PATCHES: Final[Patches] = (
    (SpotFleets, "request_spot_fleet", _request),
    (SpotFleets, "modify_spot_fleet_request", _modify),
    (SpotFleets, "cancel_spot_fleet_requests", _cancel),
)
