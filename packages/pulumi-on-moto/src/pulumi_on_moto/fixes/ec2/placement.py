"""Placement groups and reserved capacity, which moto lacks, and attachments of volumes.

A volume is attached to one instance at a time, in its zone. Source: EC2 API reference, ``AttachVolume`` and
"Error codes" (InvalidVolume.ZoneMismatch, VolumeInUse).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses.instances import InstanceResponse
from moto.moto_api._internal import mock_random

from pulumi_on_moto.fixes import Patches, around, local
from pulumi_on_moto.fixes.speedups.cached_responses import changed


def _groups(response: InstanceResponse) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = local(response.ec2_backend, "placement_groups", {})
    return groups


def _create(response: InstanceResponse) -> ActionResult:
    changed()
    name, groups = response._get_param("GroupName"), _groups(response)
    if name in groups:
        text = f"The Placement Group '{name}' already exists."
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", text)
    backend = response.ec2_backend
    group_id = f"pg-{mock_random.get_random_hex(17)}"
    specifications = response._get_param("TagSpecifications", [])
    groups[name] = {
        "GroupName": name,
        "GroupId": group_id,
        "GroupArn": f"arn:aws:ec2:{backend.region_name}:{backend.account_id}:placement-group/{name}",
        "State": "available",
        "Strategy": response._get_param("Strategy", "cluster"),
        "Tags": [tag for specification in specifications for tag in specification["Tags"]],
    }
    return ActionResult({"PlacementGroup": groups[name]})


def _describe(response: InstanceResponse) -> ActionResult:
    groups = _groups(response)
    names = response._get_param("GroupNames", []) or list(groups)
    if unknown := [name for name in names if name not in groups]:
        text = f"The Placement Group '{unknown[0]}' is unknown."
        raise EC2ClientError("InvalidPlacementGroup.Unknown", text)
    return ActionResult({"PlacementGroups": [groups[name] for name in names]})


def reserve(backend: Any, reservation: Mapping[str, Any]) -> None:
    """Add a reservation to ``DescribeCapacityReservations``, or replace that with the same id."""
    changed()
    local(backend, "reservations", {})[reservation["CapacityReservationId"]] = reservation


def _describe_reservations(response: InstanceResponse) -> ActionResult:
    reservations: dict[str, Mapping[str, Any]] = local(response.ec2_backend, "reservations", {})
    requested_ids = response._get_param("CapacityReservationIds", []) or list(reservations)
    if unknown := [name for name in requested_ids if name not in reservations]:
        text = f"The capacity reservation ID '{unknown[0]}' does not exist"
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", text)
    return ActionResult({"CapacityReservations": [reservations[name] for name in requested_ids]})


def _attach(
    attach: Callable[..., Any], backend: Any, volume_id: str, instance_id: str, *more: Any, **keywords: Any
) -> Any:
    volume, instance = backend.get_volume(volume_id), backend.get_instance(instance_id)
    if volume.zone.name != instance.placement.zone:
        text = f"The volume '{volume_id}' is not in the same availability zone"
        raise EC2ClientError("InvalidVolume.ZoneMismatch", text)
    if volume.attachment is not None:
        raise EC2ClientError("VolumeInUse", f"{volume_id} is already attached to an instance")
    return attach(backend, volume_id, instance_id, *more, **keywords)


PATCHES: Final[Patches] = (
    (InstanceResponse, "create_placement_group", _create),
    (InstanceResponse, "describe_placement_groups", _describe),
    (InstanceResponse, "describe_capacity_reservations", _describe_reservations),
    around(EC2Backend, "attach_volume", _attach),
)
