"""Spot Fleet requests as AWS has them, where moto's own go astray.

moto launches at once, spot only, from the first override, and never replaces what is lost. In the local cloud
the market decides which launches succeed: requests and targets are recorded here, and instances come and go
through ``join`` and ``leave``. Each patched method says what AWS does.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from unittest import mock

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_fleets import SpotFleets
from moto.ec2.utils import random_spot_fleet_request_id

from pulumi_on_moto.fixes import groups as moto_groups
from pulumi_on_moto.fixes.answers import changed

FLEET_TAG: Final = "aws:ec2spot:fleet-request-id"
"""What AWS tags every instance of a fleet with."""
HISTORY_KEPT: Final = 200
"""Records remembered for each fleet (AWS keeps 48 hours of them)."""

_PAGE: Final = 1000
"""Members or history records in a page: the default and the maximum."""
_ENDED: Final = ("cancelled_running", "cancelled_terminating")
_GONE: Final = ("shutting-down", "terminated")
_MODIFIABLE: Final = ("TargetCapacity", "OnDemandTargetCapacity", "ExcessCapacityTerminationPolicy")


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


def listen(backend: Any, listener: Callable[[Any], None]) -> None:
    """Call ``listener(instance)`` whenever a client terminates an instance that a group or fleet holds."""
    backend.local_listener = listener


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Patch moto's Spot Fleet while the body runs."""
    with contextlib.ExitStack() as stack:
        for name, replacement in (
            ("request_spot_fleet", _request),
            ("modify_spot_fleet_request", _modify),
            ("cancel_spot_fleet_requests", _cancel),
            ("describe_spot_fleet_requests", _describe_requests),
            ("describe_spot_fleet_instances", _describe_instances),
            ("describe_spot_fleet_request_history", _describe_history),
        ):
            stack.enter_context(mock.patch.object(SpotFleets, name, replacement, create=True))
        terminate = InstanceResponse.terminate_instances
        stack.enter_context(mock.patch.object(InstanceResponse, "terminate_instances", _releasing(terminate)))
        yield


def _request(response: SpotFleets) -> ActionResult:
    config: dict[str, Any] = dict(response._get_param("SpotFleetRequestConfig", {}))
    if bool(config.get("LaunchTemplateConfigs")) == bool(config.get("LaunchSpecifications")):
        raise _refused("exactly one of LaunchTemplateConfigs and LaunchSpecifications is needed")
    if config.get("LaunchSpecifications"):
        raise NotImplementedError("LaunchSpecifications are not emulated, LaunchTemplateConfigs are")
    for key, default in (("Type", "maintain"), ("AllocationStrategy", "lowestPrice")):
        config.setdefault(key, default)
    config.setdefault("OnDemandTargetCapacity", 0)
    _check_targets(config)
    fleet = FleetRequest(random_spot_fleet_request_id(), config, utcnow())
    for specification in config.pop("TagSpecifications", []):
        if specification.get("ResourceType") != "spot-fleet-request":
            raise _refused(f"tags for {specification.get('ResourceType')}, spot-fleet-request is allowed")
        tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        response.ec2_backend.create_tags([fleet.id], tags)
    response.ec2_backend.spot_fleet_requests[fleet.id] = fleet
    fleet.record("fleetRequestChange", "active", "")
    return ActionResult({"SpotFleetRequestId": fleet.id})


def _modify(response: SpotFleets) -> ActionResult:
    # AWS: only fleets of type maintain; launches and terminations follow later.
    fleet = _fleet(response, response._get_param("SpotFleetRequestId"))
    if fleet.state != "active" or fleet.config["Type"] != "maintain":
        raise EC2ClientError(
            "InvalidState",
            f"Spot Fleet {fleet.id} is {fleet.state} and of type {fleet.config['Type']}: "
            "only active fleets of type maintain can be modified.",
        )
    given = {key: value for key in _MODIFIABLE if (value := response._get_param(key)) is not None}
    config = {**fleet.config, **given}
    _check_targets(config)
    if config.get("ExcessCapacityTerminationPolicy") != "noTermination" and len(fleet.members) > int(
        config["TargetCapacity"]
    ):
        raise NotImplementedError("excess capacity is not terminated locally: use the policy noTermination")
    fleet.config = config
    fleet.record("fleetRequestChange", "modify_successful", json.dumps(given))
    return ActionResult({"Return": True})


def _cancel(response: SpotFleets) -> ActionResult:
    terminate = response._get_bool_param("TerminateInstances")
    done = []
    for fleet_id in response._get_param("SpotFleetRequestIds", []):
        fleet = _fleet(response, fleet_id)
        before, fleet.state = fleet.state, _ENDED[bool(terminate)]
        fleet.record("fleetRequestChange", fleet.state, "")
        if terminate:
            members = list(fleet.members)
            response.ec2_backend.terminate_instances(members)
            _released(response.ec2_backend, members)
        done.append(
            {
                "SpotFleetRequestId": fleet_id,
                "CurrentSpotFleetRequestState": fleet.state,
                "PreviousSpotFleetRequestState": before,
            }
        )
    return ActionResult({"SuccessfulFleetRequests": done, "UnsuccessfulFleetRequests": []})


def _describe_requests(response: SpotFleets) -> ActionResult:
    wanted = response._get_param("SpotFleetRequestIds", [])
    fleets = [_fleet(response, fleet_id) for fleet_id in wanted] or list(
        response.ec2_backend.spot_fleet_requests.values()
    )
    shown = []
    for fleet in fleets:
        tags = response.ec2_backend.tags.get(fleet.id, {})
        shown.append({**fleet.shown(), "Tags": [{"Key": key, "Value": tags[key]} for key in tags]})
    return _page(response, "SpotFleetRequestConfigs", shown, {})


def _describe_instances(response: SpotFleets) -> ActionResult:
    fleet = _fleet(response, response._get_param("SpotFleetRequestId"))
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
    fleet = _fleet(response, response._get_param("SpotFleetRequestId"))
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


def _releasing(terminate: Callable[[InstanceResponse], ActionResult]) -> Callable[..., ActionResult]:
    # AWS: whatever a client terminates leaves its group or fleet, which finds that out and may replace it.
    def released(response: InstanceResponse) -> ActionResult:
        wanted = response._get_param("InstanceIds", [])
        instances = [response.ec2_backend.get_instance(instance_id) for instance_id in wanted]
        held = [i.id for i in instances if i.state not in _GONE and _holder(i) is not None]
        result = terminate(response)
        _released(response.ec2_backend, held)
        return result

    return released


def _released(backend: Any, instance_ids: list[str]) -> None:
    listener: Callable[[Any], None] | None = getattr(backend, "local_listener", None)
    for instance_id in instance_ids:
        instance = backend.get_instance(instance_id)
        holder = _holder(instance)
        if isinstance(holder, FleetRequest):
            holder.leave(instance)
        else:
            moto_groups.leave(holder, instance, "an EC2 health check indicating it has been terminated")
        if listener is not None:
            listener(instance)


def _holder(instance: Any) -> Any:
    """Return the fleet or group that an instance was launched for, None for one of neither."""
    return getattr(instance, "local_fleet", None) or getattr(instance, "autoscaling_group", None)


def _fleet(response: SpotFleets, fleet_id: str) -> FleetRequest:
    found = response.ec2_backend.spot_fleet_requests.get(fleet_id)
    if not isinstance(found, FleetRequest):
        raise EC2ClientError(
            "InvalidSpotFleetRequestId.NotFound", f"The spot fleet request ID '{fleet_id}' does not exist"
        )
    return found


def _check_targets(config: Mapping[str, Any]) -> None:
    target, on_demand = int(config["TargetCapacity"]), int(config["OnDemandTargetCapacity"])
    if not 0 <= on_demand <= target:
        raise _refused(f"0 ≤ OnDemandTargetCapacity {on_demand} ≤ TargetCapacity {target} does not hold")


def _refused(problem: str) -> EC2ClientError:
    return EC2ClientError("InvalidSpotFleetRequestConfig", problem)


def _naive(moment: datetime | str) -> datetime:
    """Return a time in UTC without its zone, as moto's ``utcnow`` has it."""
    parsed = datetime.fromisoformat(moment.replace("Z", "+00:00")) if isinstance(moment, str) else moment
    return parsed.replace(tzinfo=None)
