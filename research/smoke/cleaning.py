"""Deletes what a run made: what is in its record *and* carries its tag, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from botocore.exceptions import ClientError

from research.smoke.bed import TAG, Bed

Resource: TypeAlias = tuple[dict[str, str], Callable[[], object] | None]
"""The tags of a resource and how it is deleted; None if that is under way."""

_MAX_SECONDS: Final = 900.0
"""Wait for slow deletions: a group waits for its instances."""
_MISSING: Final = ("NotFound", "NoSuchEntity")


def clean_up(bed: Bed) -> list[str]:
    """Delete the recorded resources, repeatedly; return those that remain, with the reason.

    Some can only be deleted after others. One without the run's tag is another's, whatever the record says.
    """
    end = bed.now() + _MAX_SECONDS
    while True:
        remaining = {}
        for line in reversed(list(bed.record.lines())):
            if reason := _delete(bed, line["kind"], line["name"]):
                remaining[f"{line['kind']} {line['name']}"] = reason
        slow = [reason for reason in remaining.values() if reason != _NOT_OURS]
        if not slow or bed.now() >= end:
            return [f"{subject}: {reason}" for subject, reason in remaining.items()]
        bed.sleep(15)


_NOT_OURS: Final = "without the tag of this run, not deleted"


def _delete(bed: Bed, kind: str, name: str) -> str:
    """Delete a resource; return why it remains, empty once it is gone."""
    try:
        resource = _FINDERS[kind](bed.clients, name)
        if resource is None:
            return ""
        tags, delete = resource
        if tags.get(TAG) != bed.run:
            return _NOT_OURS
        if delete is not None:
            delete()
        return "being deleted"
    except ClientError as error:
        code = error.response["Error"]["Code"]
        return "" if any(word in code for word in _MISSING) else str(error)


def _tags(resource: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}


def _group(clients: Any, name: str) -> Resource | None:
    client = clients("autoscaling")
    for group in client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]:
        is_going = group.get("Status") == "Delete in progress"
        delete = partial(client.delete_auto_scaling_group, AutoScalingGroupName=name, ForceDelete=True)
        return _tags(group), None if is_going else delete
    return None


def _fleet(clients: Any, name: str) -> Resource | None:
    client = clients("ec2")
    [fleet] = client.describe_spot_fleet_requests(SpotFleetRequestIds=[name])["SpotFleetRequestConfigs"]
    if fleet["SpotFleetRequestState"] == "cancelled":
        return None
    cancel = {"SpotFleetRequestIds": [name], "TerminateInstances": True}
    is_going = fleet["SpotFleetRequestState"].startswith("cancelled")
    return _tags(fleet), None if is_going else lambda: client.cancel_spot_fleet_requests(**cancel)


def _template(clients: Any, name: str) -> Resource | None:
    client = clients("ec2")
    [template] = client.describe_launch_templates(LaunchTemplateNames=[name])["LaunchTemplates"]
    return _tags(template), lambda: client.delete_launch_template(LaunchTemplateName=name)


def _role(clients: Any, name: str) -> Resource | None:
    client = clients("iam")

    def delete() -> None:
        for policy in client.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            client.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
        for inline in client.list_role_policies(RoleName=name)["PolicyNames"]:
            client.delete_role_policy(RoleName=name, PolicyName=inline)
        client.delete_role(RoleName=name)

    return _tags(client.get_role(RoleName=name)["Role"]), delete


def _table(clients: Any, name: str) -> Resource | None:
    client = clients("dynamodb")
    table = client.describe_table(TableName=name)["Table"]
    tags = _tags(client.list_tags_of_resource(ResourceArn=table["TableArn"]))
    is_going = table["TableStatus"] == "DELETING"
    return tags, None if is_going else lambda: client.delete_table(TableName=name)


_FINDERS: Final[Mapping[str, Callable[[Any, str], Resource | None]]] = {
    "group": _group,
    "fleet": _fleet,
    "template": _template,
    "role": _role,
    "table": _table,
}
