"""Placement groups, which moto lacks."""

from __future__ import annotations

from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.instances import InstanceResponse
from moto.moto_api._internal import mock_random

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.speedups.cached_responses import changed


def _groups(response: InstanceResponse) -> dict[str, dict[str, Any]]:
    backend = response.ec2_backend
    if not hasattr(backend, "placement_groups"):
        backend.placement_groups = {}
    groups: dict[str, dict[str, Any]] = backend.placement_groups
    return groups


def _create(response: InstanceResponse) -> ActionResult:
    changed()
    name, groups = response._get_param("GroupName"), _groups(response)
    if name in groups:
        raise EC2ClientError(
            "InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists."
        )
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
    for name in names:
        if name not in groups:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return ActionResult({"PlacementGroups": [groups[name] for name in names]})


PLACEMENT_GROUPS: Final = Fix(
    "placement groups",
    "CreatePlacementGroup and DescribePlacementGroups are missing",
    "places instances; here a launch takes any group",
    (
        (InstanceResponse, "create_placement_group", _create),
        (InstanceResponse, "describe_placement_groups", _describe),
    ),
)
