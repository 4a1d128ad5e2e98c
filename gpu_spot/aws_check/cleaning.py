"""Deletes the resources that carry the tag of a run, repeatedly until none are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check import cleaning_services
from gpu_spot.aws_check.aws_test_bed import TAG, TestBedClock
from gpu_spot.aws_check.leftover import Leftover, belongs_to, list_all, prefix
from gpu_spot.preflight.account import ClientOf

_MAX_SECONDS: Final = 900.0
"""Maximum wait for slow deletions: instances, then their volumes and groups."""
_PAUSE_SECONDS: Final = 15.0
_TERMINATING: Final = ("shutting-down", "terminated")


def clean_up(clients: ClientOf, clock: TestBedClock, run: str | None = None) -> list[str]:
    """Delete the resources of one run, or of all runs; return what remains after fifteen minutes.

    Some resources can only be deleted after others; rejected deletions are retried.
    """
    end = clock.now() + _MAX_SECONDS
    while remaining := list(leftovers(clients, run)):
        if clock.now() >= end:
            return [leftover.description for leftover in remaining]
        for leftover in remaining:
            if leftover.delete is not None:
                _try(leftover.delete)
        clock.sleep(_PAUSE_SECONDS)
    return []


def delete_compute(clients: ClientOf, run: str) -> None:
    """Start to delete the groups, fleets and instances of a run, and what EC2 has of them."""
    for kind in (_groups, _fleets, _instances, _compute):
        for leftover in kind(clients, run):
            if leftover.delete is not None:
                _try(leftover.delete)


def _try(delete: Callable[[], Any]) -> None:
    try:
        delete()
    except ClientError:
        return  # in use, or already being deleted: retried in the next round


def leftovers(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    """Yield the existing resources of a run, or of all runs, in order of deletion."""
    kinds = (_groups, _fleets, _instances, _compute, _messages, _stores, _files)
    for kind in (*kinds, *cleaning_services.KINDS, _roles):
        yield from kind(clients, run)


def _filter(run: str | None) -> list[dict[str, Any]]:
    if run is None:
        return [{"Name": "tag-key", "Values": [TAG]}]
    return [{"Name": f"tag:{TAG}", "Values": [run]}]


def _groups(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("autoscaling")
    for group in list_all(client, "describe_auto_scaling_groups", "AutoScalingGroups"):
        name = group["AutoScalingGroupName"]
        if belongs_to(group["Tags"], run):
            delete = partial(client.delete_auto_scaling_group, AutoScalingGroupName=name, ForceDelete=True)
            yield Leftover(f"group {name}", delete)


def _fleets(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ec2")
    for fleet in list_all(client, "describe_spot_fleet_requests", "SpotFleetRequestConfigs"):
        name, state = fleet["SpotFleetRequestId"], fleet["SpotFleetRequestState"]
        if belongs_to(fleet.get("Tags", []), run) and not state.startswith("cancelled"):
            cancel = partial(client.cancel_spot_fleet_requests, SpotFleetRequestIds=[name])
            yield Leftover(f"fleet {name}", partial(cancel, TerminateInstances=True))


def _instances(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ec2")
    for reservation in list_all(client, "describe_instances", "Reservations", Filters=_filter(run)):
        for instance in reservation["Instances"]:
            name, state = instance["InstanceId"], instance["State"]["Name"]
            delete = (
                None if state in _TERMINATING else partial(client.terminate_instances, InstanceIds=[name])
            )
            if state != "terminated":
                yield Leftover(f"instance {name}", delete)


def _compute(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client, filters = clients("ec2"), _filter(run)
    for template in list_all(client, "describe_launch_templates", "LaunchTemplates", Filters=filters):
        name = template["LaunchTemplateId"]
        yield Leftover(f"template {name}", partial(client.delete_launch_template, LaunchTemplateId=name))
    for template in list_all(client, "describe_volumes", "Volumes", Filters=filters):
        name = template["VolumeId"]
        yield Leftover(f"volume {name}", partial(client.delete_volume, VolumeId=name))
    for template in list_all(client, "describe_snapshots", "Snapshots", Filters=filters, OwnerIds=["self"]):
        name = template["SnapshotId"]
        yield Leftover(f"snapshot {name}", partial(client.delete_snapshot, SnapshotId=name))


def _messages(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    sqs, events = clients("sqs"), clients("events")
    for url in list_all(sqs, "list_queues", "QueueUrls", QueueNamePrefix=prefix(run)):
        yield Leftover(f"queue {url}", partial(sqs.delete_queue, QueueUrl=url))

    def delete_rule(name: str) -> None:
        targets = [target["Id"] for target in events.list_targets_by_rule(Rule=name)["Targets"]]
        if targets:
            events.remove_targets(Rule=name, Ids=targets)
        events.delete_rule(Name=name)

    for rule in list_all(events, "list_rules", "Rules", NamePrefix=prefix(run)):
        yield Leftover(f"rule {rule['Name']}", partial(delete_rule, rule["Name"]))


def _stores(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    tables, ssm = clients("dynamodb"), clients("ssm")
    for name in list_all(tables, "list_tables", "TableNames"):
        if name.startswith(prefix(run)):
            yield Leftover(f"table {name}", partial(tables.delete_table, TableName=name))
    path = "/gpu-spot-check" if run is None else f"/gpu-spot-check/{run}"
    for parameter in list_all(ssm, "get_parameters_by_path", "Parameters", Path=path, Recursive=True):
        yield Leftover(
            f"parameter {parameter['Name']}", partial(ssm.delete_parameter, Name=parameter["Name"])
        )


def _files(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("efs")
    for file_system in list_all(client, "describe_file_systems", "FileSystems"):
        name = file_system["FileSystemId"]
        if belongs_to(file_system["Tags"], run):
            yield Leftover(f"file system {name}", partial(client.delete_file_system, FileSystemId=name))


def _roles(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("iam")

    def delete_role(name: str) -> None:
        for policy in client.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            client.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
        for policy in client.list_role_policies(RoleName=name)["PolicyNames"]:
            client.delete_role_policy(RoleName=name, PolicyName=policy)
        for profile in client.list_instance_profiles_for_role(RoleName=name)["InstanceProfiles"]:
            profile_name = profile["InstanceProfileName"]
            client.remove_role_from_instance_profile(InstanceProfileName=profile_name, RoleName=name)
            client.delete_instance_profile(InstanceProfileName=profile_name)
        client.delete_role(RoleName=name)

    for role in list_all(client, "list_roles", "Roles"):
        if role["RoleName"].startswith(prefix(run)):
            yield Leftover(f"role {role['RoleName']}", partial(delete_role, role["RoleName"]))
