"""For each assumption a fault of AWS: one operation that behaves differently."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.aws_check import faults_of_services
from tests.aws_check.doubles import (
    ALLOWED,
    ASG,
    EC2,
    GROUPS,
    POOL,
    SQS,
    TERMINATE,
    Call,
    Change,
    asked,
    edited,
    fleet,
    group,
    members,
    refused,
    skipped,
)


def _terminate_one_more(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """Lowering the capacity ends a member."""
    answer = call(**given)
    if given["DesiredCapacity"] == 1:
        client: Any = call.__self__  # type: ignore[attr-defined]
        [found] = client.describe_auto_scaling_groups(AutoScalingGroupNames=[given["AutoScalingGroupName"]])[
            "AutoScalingGroups"
        ]
        client.terminate_instance_in_auto_scaling_group(
            InstanceId=found["Instances"][0]["InstanceId"], ShouldDecrementDesiredCapacity=False
        )
    return answer


def _second_accepted() -> Change:
    calls = count()
    return lambda call, given: call(**given) if next(calls) == 0 else {}


def _always_another_member() -> Change:
    calls = count()
    return edited(lambda answer: answer.update(ActiveInstances=[{"InstanceId": f"i-{next(calls)}"}]))


def _with_more_receives(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """A queue that has a message received more often than it says."""
    attributes = dict(given.get("Attributes", {}))
    if "RedrivePolicy" in attributes:
        policy = json.loads(attributes["RedrivePolicy"])
        attributes["RedrivePolicy"] = json.dumps(policy | {"maxReceiveCount": 4})
    return call(**given | {"Attributes": attributes})


def _priority_zero(shown: dict[str, Any]) -> None:
    for override in shown["SpotFleetRequestConfig"]["LaunchTemplateConfigs"][0]["Overrides"]:
        override["Priority"] = 0.0


def _scale_in(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """What was to end one is a scale-in."""
    client: Any = call.__self__  # type: ignore[attr-defined]
    instances = [given["InstanceId"]]
    [found] = client.describe_auto_scaling_instances(InstanceIds=instances)["AutoScalingInstances"]
    group = {"AutoScalingGroupName": found["AutoScalingGroupName"]}
    client.set_instance_protection(**group, InstanceIds=instances, ProtectedFromScaleIn=False)
    client.set_desired_capacity(**group, DesiredCapacity=0)
    return {}


def _no_condition(answer: dict[str, Any]) -> None:
    policy = json.loads(answer["Policy"])
    del policy["Statement"][0]["Condition"]
    answer["Policy"] = json.dumps(policy)


FAULTS: dict[str, tuple[str, str, Change]] = {
    "image-id-with-warm-pool": (ASG, "put_warm_pool", refused("ValidationError", "not supported")),
    "mixed-group-with-warm-pool": (ASG, "put_warm_pool", refused("ValidationError", "mixed instances")),
    "parameter-image": (ASG, "create_auto_scaling_group", refused("ValidationError", "Invalid id")),
    "parameter-image-refuses-warm-pool": (ASG, "put_warm_pool", skipped()),
    "parameter-image-refuses-requirements": (ASG, "create_auto_scaling_group", skipped()),
    "five-requirement-blocks": (ASG, "create_auto_scaling_group", skipped()),
    "template-versions": (
        EC2,
        "describe_launch_templates",
        edited(lambda answer: answer["LaunchTemplates"][0].update(DefaultVersionNumber=2)),
    ),
    "desired-above-max": (ASG, "set_desired_capacity", skipped()),
    "max-lowers-desired": (ASG, "update_auto_scaling_group", skipped()),
    "release": (ASG, TERMINATE, asked(ShouldDecrementDesiredCapacity=False)),
    "release-of-a-protected": (ASG, TERMINATE, refused("ValidationError", "protected from scale in")),
    "release-by-weight": (ASG, TERMINATE, asked(ShouldDecrementDesiredCapacity=False)),
    "release-of-a-gone": (ASG, TERMINATE, refused("ValidationError", "no such thing")),
    "protection-is-inherited": (ASG, GROUPS, members(lambda one: one.update(ProtectedFromScaleIn=False))),
    "protected-are-spared": (ASG, "set_desired_capacity", _terminate_one_more),
    "tags-of-members": (
        EC2,
        "describe_instances",
        edited(lambda answer: answer["Reservations"][0]["Instances"][0].update(Tags=[])),
    ),
    "launch-activity": (
        ASG,
        "describe_scaling_activities",
        edited(lambda answer: answer["Activities"][0].update(Description="Starting an instance")),
    ),
    "suspended-process": (ASG, "suspend_processes", asked(ScalingProcesses=["AZRebalance", "Launch"])),
    "spot-price-of-now": (
        EC2,
        "describe_spot_price_history",
        edited(lambda answer: answer["SpotPriceHistory"].append(answer["SpotPriceHistory"][0])),
    ),
    "described-soon": (EC2, "describe_instances", skipped({"Reservations": []})),
    "launch-hook-holds": (ASG, GROUPS, members(lambda one: one.update(LifecycleState="InService"))),
    "no-active-action": (ASG, "complete_lifecycle_action", skipped()),
    "terminating-wait": (
        ASG,
        GROUPS,
        members(lambda one: one.update(LifecycleState=one["LifecycleState"].replace("Terminating", "Gone"))),
    ),
    "launch-in-zone": (ASG, GROUPS, group(DesiredCapacity=0)),
    "launch-in-zone-above-max": (ASG, "launch_instances", asked(RequestedCapacity=1)),
    "launch-in-zone-refuses-warm-pool": (ASG, "launch_instances", skipped()),
    "warm-instances-stand-apart": (ASG, GROUPS, group(DesiredCapacity=1)),
    "warm-start": (
        ASG,
        POOL,
        edited(lambda answer: [one.update(InstanceId="i-another") for one in answer["Instances"]] and None),
    ),
    "warm-instances-inherit-protection": (
        ASG,
        GROUPS,
        members(lambda one: one.update(ProtectedFromScaleIn=False)),
    ),
    "pool-and-group-together": (ASG, "put_warm_pool", asked(MinSize=1)),
    "scale-in-returns": (ASG, "set_instance_protection", skipped()),
    "termination-does-not-return": (ASG, "terminate_instance_in_auto_scaling_group", _scale_in),
    "hooks-fire-twice": (ASG, POOL, skipped({"Instances": []})),
    "fleet-targets-together": (EC2, "modify_spot_fleet_request", asked(OnDemandTargetCapacity=0)),
    "fleet-not-twice": (EC2, "modify_spot_fleet_request", skipped()),
    "fleet-keeps-its-members": (EC2, "describe_spot_fleet_instances", _always_another_member()),
    "fleet-of-a-request": (EC2, "modify_spot_fleet_request", skipped()),
    "fleet-tags": (EC2, "describe_spot_fleet_requests", fleet(lambda one: one.update(Tags=[]))),
    "fleet-priorities": (EC2, "describe_spot_fleet_requests", fleet(_priority_zero)),
    "fleet-tells-of-a-shortage": (
        EC2,
        "describe_spot_fleet_request_history",
        skipped({"HistoryRecords": []}),
    ),
    "delayed-message": (SQS, "send_message", asked(DelaySeconds=0)),
    "longest-delay": (SQS, "send_message", skipped()),
    "visibility": (SQS, "change_message_visibility", skipped()),
    "dead-letters": (SQS, "create_queue", _with_more_receives),
    "event-into-an-encrypted-queue": ("events", "put_events", skipped()),
    "conditional-write": ("dynamodb", "put_item", skipped()),
    "update-makes-the-item": ("dynamodb", "update_item", skipped()),
    "pages-of-ten": ("ssm", "get_parameters_by_path", edited(lambda answer: answer.pop("NextToken"))),
    "longest-parameter": ("ssm", "put_parameter", skipped()),
    "policy-of-files": ("efs", "describe_file_system_policy", edited(_no_condition)),
    "volume-of-another-zone": (EC2, "attach_volume", skipped()),
    "one-holder": (EC2, "attach_volume", _second_accepted()),
    "attached-is-not-deleted": (EC2, "delete_volume", skipped()),
    "detached-already": (EC2, "detach_volume", skipped()),
    "volume-travels": (
        EC2,
        "describe_snapshots",
        edited(lambda answer: answer["Snapshots"][0].update(Tags=[])),
    ),
    "tags-of-groups-bound-permissions": ("iam", "simulate_custom_policy", ALLOWED),
    "tags-of-volumes-bound-permissions": ("iam", "simulate_custom_policy", ALLOWED),
    "keys-of-items-bound-permissions": ("iam", "simulate_custom_policy", ALLOWED),
    **faults_of_services.FAULTS,
}
