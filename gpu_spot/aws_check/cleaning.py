"""Leave nothing behind: what carries the tag of a run is deleted, again and again until nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check.lab import PREFIX, TAG, Timekeeper
from gpu_spot.preflight.account import ClientOf

_LONGEST: Final = 900.0
"""Seconds to wait for what goes slowly: instances, then the volumes and groups behind them."""
_PAUSE: Final = 15.0
_GOING: Final = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something of a run that is still there. ``delete`` is None for what goes by itself."""

    what: str
    delete: Callable[[], Any] | None


def clean_up(clients: ClientOf, clock: Timekeeper, run: str | None = None) -> list[str]:
    """Delete what one run left, or all runs, and return what is still there after fifteen minutes.

    An instance goes before its volumes can: what is refused now is tried again later.
    """
    end = clock.now() + _LONGEST
    while left := list(leftovers(clients, run)):
        if clock.now() >= end:
            return [one.what for one in left]
        for one in left:
            if one.delete is not None:
                _try(one.delete)
        clock.sleep(_PAUSE)
    return []


def _try(delete: Callable[[], Any]) -> None:
    try:
        delete()
    except ClientError:
        return  # in use, or going already: the next round sees


def leftovers(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    """Yield what is there of a run, or of any, in the order in which it can go."""
    for kind in (_groups, _fleets, _instances, _compute, _messages, _stores, _files, _roles):
        yield from kind(clients, run)


def _is_of(tags: list[dict[str, str]], run: str | None) -> bool:
    return any(tag["Key"] == TAG and run in (None, tag["Value"]) for tag in tags)


def _prefix(run: str | None) -> str:
    return PREFIX if run is None else f"{PREFIX}{run}-"


def _filter(run: str | None) -> list[dict[str, Any]]:
    if run is None:
        return [{"Name": "tag-key", "Values": [TAG]}]
    return [{"Name": f"tag:{TAG}", "Values": [run]}]


def _groups(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("autoscaling")
    for page in client.get_paginator("describe_auto_scaling_groups").paginate():
        for group in page["AutoScalingGroups"]:
            name = group["AutoScalingGroupName"]
            if _is_of(group["Tags"], run):
                yield Leftover(
                    f"group {name}",
                    partial(client.delete_auto_scaling_group, AutoScalingGroupName=name, ForceDelete=True),
                )


def _fleets(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ec2")
    for page in client.get_paginator("describe_spot_fleet_requests").paginate():
        for fleet in page["SpotFleetRequestConfigs"]:
            name, state = fleet["SpotFleetRequestId"], fleet["SpotFleetRequestState"]
            if _is_of(fleet.get("Tags", []), run) and not state.startswith("cancelled"):
                yield Leftover(
                    f"fleet {name}",
                    partial(
                        client.cancel_spot_fleet_requests, SpotFleetRequestIds=[name], TerminateInstances=True
                    ),
                )


def _instances(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ec2")
    for page in client.get_paginator("describe_instances").paginate(Filters=_filter(run)):
        for instance in (one for reservation in page["Reservations"] for one in reservation["Instances"]):
            name, state = instance["InstanceId"], instance["State"]["Name"]
            if state == "terminated":
                continue
            yield Leftover(
                f"instance {name}",
                None if state in _GOING else partial(client.terminate_instances, InstanceIds=[name]),
            )


def _compute(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client, wanted = clients("ec2"), _filter(run)
    for one in client.describe_launch_templates(Filters=wanted)["LaunchTemplates"]:
        name = one["LaunchTemplateId"]
        yield Leftover(f"template {name}", partial(client.delete_launch_template, LaunchTemplateId=name))
    for one in client.describe_volumes(Filters=wanted)["Volumes"]:
        name = one["VolumeId"]
        yield Leftover(f"volume {name}", partial(client.delete_volume, VolumeId=name))
    for one in client.describe_snapshots(Filters=wanted, OwnerIds=["self"])["Snapshots"]:
        name = one["SnapshotId"]
        yield Leftover(f"snapshot {name}", partial(client.delete_snapshot, SnapshotId=name))


def _messages(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    sqs, events = clients("sqs"), clients("events")
    for url in sqs.list_queues(QueueNamePrefix=_prefix(run)).get("QueueUrls", []):
        yield Leftover(f"queue {url}", partial(sqs.delete_queue, QueueUrl=url))

    def delete_rule(name: str) -> None:
        targets = [target["Id"] for target in events.list_targets_by_rule(Rule=name)["Targets"]]
        if targets:
            events.remove_targets(Rule=name, Ids=targets)
        events.delete_rule(Name=name)

    for rule in events.list_rules(NamePrefix=_prefix(run))["Rules"]:
        yield Leftover(f"rule {rule['Name']}", partial(delete_rule, rule["Name"]))


def _stores(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    tables, ssm = clients("dynamodb"), clients("ssm")
    for page in tables.get_paginator("list_tables").paginate():
        for name in page["TableNames"]:
            if name.startswith(_prefix(run)):
                yield Leftover(f"table {name}", partial(tables.delete_table, TableName=name))
    path = "/gpu-spot-check" if run is None else f"/gpu-spot-check/{run}"
    for page in ssm.get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True):
        for one in page["Parameters"]:
            yield Leftover(f"parameter {one['Name']}", partial(ssm.delete_parameter, Name=one["Name"]))


def _files(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("efs")
    for page in client.get_paginator("describe_file_systems").paginate():
        for one in page["FileSystems"]:
            if _is_of(one["Tags"], run):
                name = one["FileSystemId"]
                yield Leftover(f"file system {name}", partial(client.delete_file_system, FileSystemId=name))


def _roles(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("iam")

    def delete_role(name: str) -> None:
        for policy in client.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            client.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
        client.delete_role(RoleName=name)

    for page in client.get_paginator("list_roles").paginate():
        for role in page["Roles"]:
            if role["RoleName"].startswith(_prefix(run)):
                yield Leftover(f"role {role['RoleName']}", partial(delete_role, role["RoleName"]))
