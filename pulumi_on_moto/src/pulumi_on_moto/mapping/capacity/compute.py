"""Capacity: launch templates, Auto Scaling groups, lifecycle hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulumi_on_moto.mapping.base import Draft, Made, Spec
from pulumi_on_moto.mapping.capacity.requirements import check, expand

_HOOK_NAMES: Final = {"name": "lifecycleHookName"}
_TEMPLATE_NAMES: Final = {"vpcSecurityGroupIds": "securityGroupIds", "securityGroupNames": "securityGroups"}
_INTERFACE_NAMES: Final = {"securityGroups": "groups"}
_WAITS: Final = "nothing to wait for or to delete here"


def _launch_template(draft: Draft) -> None:
    name = draft.need("name")
    data = {
        _TEMPLATE_NAMES.get(key, key): value for key, value in draft.inputs.items() if key != "description"
    }
    if interfaces := data.get("networkInterfaces"):
        data["networkInterfaces"] = [
            {_INTERFACE_NAMES.get(key, key): value for key, value in interface.items()} for interface in interfaces
        ]
    draft.put(
        LaunchTemplateName=name,
        VersionDescription=draft.take("description"),
        LaunchTemplateData=draft.matched(
            "ec2", "CreateLaunchTemplate", data, "launchTemplate", "LaunchTemplateData"
        ),
    )
    draft.inputs.clear()


def _check_bounds(draft: Draft) -> None:
    """Refuse what AWS would refuse and moto accepts."""
    low, high = int(draft.inputs.get("minSize", 0)), int(draft.inputs.get("maxSize", 0))
    desired = int(draft.inputs.get("desiredCapacity", low))
    if not 0 <= low <= desired <= high:
        raise draft.fail(f"minSize {low} ≤ desiredCapacity {desired} ≤ maxSize {high} does not hold")
    policy: Mapping[str, Any] = draft.inputs.get("mixedInstancesPolicy") or {}
    distribution = policy.get("instancesDistribution") or {}
    percentage = int(distribution.get("onDemandPercentageAboveBaseCapacity", 100))
    if not 0 <= percentage <= 100:
        raise draft.fail(f"onDemandPercentageAboveBaseCapacity is {percentage}, 0 to 100 is allowed")


def _group(draft: Draft) -> None:
    _check_bounds(draft)
    policy = draft.inputs.get("mixedInstancesPolicy")
    if policy and policy["launchTemplate"].get("overrides"):
        launch = policy["launchTemplate"]
        check(draft, launch.get("launchTemplateSpecification"), launch["overrides"])
        plain = expand(draft, launch["overrides"])
        draft.inputs["mixedInstancesPolicy"] = {**policy, "launchTemplate": {**launch, "overrides": plain}}
    subnets = draft.take("vpcZoneIdentifiers")
    if subnets:
        draft.put(VPCZoneIdentifier=",".join(subnets))
    template = draft.take("launchTemplate")
    if template:
        names = {"id": "launchTemplateId", "name": "launchTemplateName", "version": "version"}
        renamed = {names[key]: value for key, value in template.items() if value is not None}
        shaped = draft.matched(
            "autoscaling", "CreateAutoScalingGroup", renamed, "launchTemplate", "LaunchTemplate"
        )
        draft.put(LaunchTemplate=shaped)


def _group_extras(made: Made) -> None:
    autoscaling = made.clients("autoscaling")
    draft = Draft(made.type, made.name, "", made.clients, {})
    if made.inputs.get("suspendedProcesses"):
        autoscaling.suspend_processes(
            AutoScalingGroupName=made.id, ScalingProcesses=made.inputs["suspendedProcesses"]
        )
    if made.inputs.get("enabledMetrics"):
        autoscaling.enable_metrics_collection(
            AutoScalingGroupName=made.id,
            Metrics=made.inputs["enabledMetrics"],
            Granularity=made.inputs.get("metricsGranularity", "1Minute"),
        )
    # moto drops the hooks of CreateAutoScalingGroup; each is put by itself.
    for hook in made.inputs.get("initialLifecycleHooks") or []:
        named = {_HOOK_NAMES.get(key, key): value for key, value in hook.items()}
        shaped = draft.matched("autoscaling", "PutLifecycleHook", named, "initialLifecycleHooks[]")
        autoscaling.put_lifecycle_hook(AutoScalingGroupName=made.id, **shaped)
    if made.inputs.get("warmPool"):
        shaped = draft.matched("autoscaling", "PutWarmPool", made.inputs["warmPool"], "warmPool")
        autoscaling.put_warm_pool(AutoScalingGroupName=made.id, **shaped)


def _group_outputs(made: Made) -> dict[str, Any]:
    reply = made.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[made.id])
    group = reply["AutoScalingGroups"][0]
    return {
        "arn": group["AutoScalingGroupARN"],
        "availabilityZones": group["AvailabilityZones"],
        "desiredCapacity": group["DesiredCapacity"],
    }


SPECS: dict[str, Spec] = {
    "aws:ec2/launchTemplate:LaunchTemplate": Spec(
        "ec2.create_launch_template",
        "LaunchTemplate.LaunchTemplateId",
        autoname="name",
        tags="ec2",
        shape=_launch_template,
        outputs=lambda made: {
            "arn": made.arn("ec2", f"launch-template/{made.id}"),
            "latestVersion": made.find("LaunchTemplate.LatestVersionNumber"),
            "defaultVersion": made.find("LaunchTemplate.DefaultVersionNumber"),
        },
        no_effect={"updateDefaultVersion": "a new template's only version is its default"},
    ),
    "aws:autoscaling/group:Group": Spec(
        "autoscaling.create_auto_scaling_group",
        "=AutoScalingGroupName",
        rename={
            "name": "AutoScalingGroupName",
            "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
            "loadBalancers": "LoadBalancerNames",
            "serviceLinkedRoleArn": "ServiceLinkedRoleARN",
        },
        autoname="name",
        tags="list",
        shape=_group,
        after=_group_extras,
        takes=frozenset(
            {
                "suspendedProcesses",
                "enabledMetrics",
                "metricsGranularity",
                "warmPool",
                "initialLifecycleHooks",
            }
        ),
        outputs=_group_outputs,
        no_effect={
            "forceDelete": _WAITS,
            "forceDeleteWarmPool": _WAITS,
            "waitForCapacityTimeout": _WAITS,
            "minElbCapacity": _WAITS,
            "waitForElbCapacity": _WAITS,
            "ignoreFailedScalingActivities": _WAITS,
            "instanceRefresh": "instances come and go by join and leave alone",
        },
    ),
    "aws:autoscaling/lifecycleHook:LifecycleHook": Spec(
        "autoscaling.put_lifecycle_hook",
        "=LifecycleHookName",
        rename={"name": "LifecycleHookName", "autoscalingGroupName": "AutoScalingGroupName"},
        autoname="name",
    ),
}
