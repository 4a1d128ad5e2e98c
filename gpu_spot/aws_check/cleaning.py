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


def _listed(client: Any, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
    """Yield what all pages of a listing hold under ``key``."""
    for page in client.get_paginator(operation).paginate(**arguments):
        yield from page.get(key, [])


def _groups(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("autoscaling")
    for group in _listed(client, "describe_auto_scaling_groups", "AutoScalingGroups"):
        name = group["AutoScalingGroupName"]
        if _is_of(group["Tags"], run):
            delete = partial(client.delete_auto_scaling_group, AutoScalingGroupName=name, ForceDelete=True)
            yield Leftover(f"group {name}", delete)


def _fleets(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ec2")
    for fleet in _listed(client, "describe_spot_fleet_requests", "SpotFleetRequestConfigs"):
        name, state = fleet["SpotFleetRequestId"], fleet["SpotFleetRequestState"]
        if _is_of(fleet.get("Tags", []), run) and not state.startswith("cancelled"):
            cancel = partial(client.cancel_spot_fleet_requests, SpotFleetRequestIds=[name])
            yield Leftover(f"fleet {name}", partial(cancel, TerminateInstances=True))


def _instances(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ec2")
    for reservation in _listed(client, "describe_instances", "Reservations", Filters=_filter(run)):
        for instance in reservation["Instances"]:
            name, state = instance["InstanceId"], instance["State"]["Name"]
            delete = None if state in _GOING else partial(client.terminate_instances, InstanceIds=[name])
            if state != "terminated":
                yield Leftover(f"instance {name}", delete)


def _compute(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client, wanted = clients("ec2"), _filter(run)
    for one in _listed(client, "describe_launch_templates", "LaunchTemplates", Filters=wanted):
        name = one["LaunchTemplateId"]
        yield Leftover(f"template {name}", partial(client.delete_launch_template, LaunchTemplateId=name))
    for one in _listed(client, "describe_volumes", "Volumes", Filters=wanted):
        name = one["VolumeId"]
        yield Leftover(f"volume {name}", partial(client.delete_volume, VolumeId=name))
    for one in _listed(client, "describe_snapshots", "Snapshots", Filters=wanted, OwnerIds=["self"]):
        name = one["SnapshotId"]
        yield Leftover(f"snapshot {name}", partial(client.delete_snapshot, SnapshotId=name))


def _messages(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    sqs, events = clients("sqs"), clients("events")
    for url in _listed(sqs, "list_queues", "QueueUrls", QueueNamePrefix=_prefix(run)):
        yield Leftover(f"queue {url}", partial(sqs.delete_queue, QueueUrl=url))

    def delete_rule(name: str) -> None:
        targets = [target["Id"] for target in events.list_targets_by_rule(Rule=name)["Targets"]]
        if targets:
            events.remove_targets(Rule=name, Ids=targets)
        events.delete_rule(Name=name)

    for rule in _listed(events, "list_rules", "Rules", NamePrefix=_prefix(run)):
        yield Leftover(f"rule {rule['Name']}", partial(delete_rule, rule["Name"]))


def _stores(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    tables, ssm = clients("dynamodb"), clients("ssm")
    for name in _listed(tables, "list_tables", "TableNames"):
        if name.startswith(_prefix(run)):
            yield Leftover(f"table {name}", partial(tables.delete_table, TableName=name))
    path = "/gpu-spot-check" if run is None else f"/gpu-spot-check/{run}"
    for one in _listed(ssm, "get_parameters_by_path", "Parameters", Path=path, Recursive=True):
        yield Leftover(f"parameter {one['Name']}", partial(ssm.delete_parameter, Name=one["Name"]))


def _files(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("efs")
    for one in _listed(client, "describe_file_systems", "FileSystems"):
        name = one["FileSystemId"]
        if _is_of(one["Tags"], run):
            yield Leftover(f"file system {name}", partial(client.delete_file_system, FileSystemId=name))


def _roles(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("iam")

    def delete_role(name: str) -> None:
        for policy in client.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            client.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
        client.delete_role(RoleName=name)

    for role in _listed(client, "list_roles", "Roles"):
        if role["RoleName"].startswith(_prefix(run)):
            yield Leftover(f"role {role['RoleName']}", partial(delete_role, role["RoleName"]))
