"""Capacity: launch templates, Auto Scaling groups, lifecycle hooks, Spot Fleets.

moto stores groups and fleets; only join and leave change their instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths
from pulumi_on_moto.mapping.requirements import check, check_of_fleet, expand, specification

_HOOK_NAMES: Final = {"name": "lifecycleHookName"}
_TEMPLATE_NAMES: Final = {"vpcSecurityGroupIds": "securityGroupIds", "securityGroupNames": "securityGroups"}
_INTERFACE_NAMES: Final = {"securityGroups": "groups"}
_FLEET_NAMES: Final = {"fleetType": "type", "instanceInterruptionBehaviour": "instanceInterruptionBehavior"}
_WAITS: Final = "nothing to wait for or to delete here"


def _launch_template(draft: ResourceRequest) -> None:
    name = draft.need("name")
    data = {
        _TEMPLATE_NAMES.get(key, key): value for key, value in draft.inputs.items() if key != "description"
    }
    if interfaces := data.get("networkInterfaces"):
        data["networkInterfaces"] = [
            {_INTERFACE_NAMES.get(key, key): value for key, value in interface.items()}
            for interface in interfaces
        ]
    draft.put(
        LaunchTemplateName=name,
        VersionDescription=draft.take("description"),
        LaunchTemplateData=draft.matched(
            "ec2", "CreateLaunchTemplate", data, "launchTemplate", "LaunchTemplateData"
        ),
    )
    draft.inputs.clear()


def _check_bounds(draft: ResourceRequest) -> None:
    """Reject inputs that AWS would reject and moto accepts."""
    low, high = int(draft.inputs.get("minSize", 0)), int(draft.inputs.get("maxSize", 0))
    desired = int(draft.inputs.get("desiredCapacity", low))
    if not 0 <= low <= desired <= high:
        raise draft.fail(f"minSize {low} ≤ desiredCapacity {desired} ≤ maxSize {high} does not hold")
    policy: Mapping[str, Any] = draft.inputs.get("mixedInstancesPolicy") or {}
    distribution = policy.get("instancesDistribution") or {}
    percentage = int(distribution.get("onDemandPercentageAboveBaseCapacity", 100))
    if not 0 <= percentage <= 100:
        raise draft.fail(f"onDemandPercentageAboveBaseCapacity must be from 0 to 100, not {percentage}")


def _group(draft: ResourceRequest) -> None:
    _check_bounds(draft)
    policy = draft.inputs.get("mixedInstancesPolicy")
    if policy and policy["launchTemplate"].get("overrides"):
        launch = policy["launchTemplate"]
        check(draft, launch.get("launchTemplateSpecification"), launch["overrides"])
        plain = expand(draft, launch["overrides"])
        draft.inputs["mixedInstancesPolicy"] = {**policy, "launchTemplate": {**launch, "overrides": plain}}
    if subnets := draft.take("vpcZoneIdentifiers"):
        draft.put(VPCZoneIdentifier=",".join(subnets))
    if template := draft.take("launchTemplate"):
        draft.inputs["launchTemplate"] = specification(template)


def _group_extras(resource: CreatedResource) -> None:
    autoscaling = resource.clients("autoscaling")
    if resource.inputs.get("suspendedProcesses"):
        autoscaling.suspend_processes(
            AutoScalingGroupName=resource.id, ScalingProcesses=resource.inputs["suspendedProcesses"]
        )
    if resource.inputs.get("enabledMetrics"):
        autoscaling.enable_metrics_collection(
            AutoScalingGroupName=resource.id,
            Metrics=resource.inputs["enabledMetrics"],
            Granularity=resource.inputs.get("metricsGranularity", "1Minute"),
        )
    # moto ignores the hooks of CreateAutoScalingGroup; each is created separately.
    for hook in resource.inputs.get("initialLifecycleHooks") or []:
        named = {_HOOK_NAMES.get(key, key): value for key, value in hook.items()}
        shaped = resource.matched("autoscaling", "PutLifecycleHook", named, "initialLifecycleHooks[]")
        autoscaling.put_lifecycle_hook(AutoScalingGroupName=resource.id, **shaped)
    if resource.inputs.get("warmPool"):
        shaped = resource.matched("autoscaling", "PutWarmPool", resource.inputs["warmPool"], "warmPool")
        autoscaling.put_warm_pool(AutoScalingGroupName=resource.id, **shaped)


def _group_outputs(resource: CreatedResource) -> dict[str, Any]:
    reply = resource.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[resource.id])
    group = reply["AutoScalingGroups"][0]
    return {
        "arn": group["AutoScalingGroupARN"],
        "availabilityZones": group["AvailabilityZones"],
        "desiredCapacity": group["DesiredCapacity"],
    }


def _template_config(draft: ResourceRequest, config: dict[str, Any]) -> dict[str, Any]:
    named = specification(config["launchTemplateSpecification"])
    check_of_fleet(draft, config.get("overrides") or [])
    overrides = expand(draft, config.get("overrides") or [])
    return {**config, "launchTemplateSpecification": named, "overrides": overrides}


def _fleet(draft: ResourceRequest) -> None:
    if draft.inputs.get("allocationStrategy") != "lowestPrice":
        draft.take("instancePoolsToUseCount")
    for key in ("loadBalancers", "targetGroupArns"):
        if draft.take(key):
            raise draft.fail(f"input {key!r}: load balancers are not emulated locally")
    configs = [_template_config(draft, config) for config in draft.need("launchTemplateConfigs")]
    settings = {_FLEET_NAMES.get(key, key): value for key, value in draft.inputs.items()}
    settings["launchTemplateConfigs"] = configs
    draft.inputs.clear()
    shaped = draft.matched("ec2", "RequestSpotFleet", settings, "spotFleetRequest", "SpotFleetRequestConfig")
    draft.put(SpotFleetRequestConfig=shaped)


SPECS: dict[str, Spec] = {
    "aws:ec2/launchTemplate:LaunchTemplate": Spec(
        "ec2.create_launch_template",
        "LaunchTemplate.LaunchTemplateId",
        autoname="name",
        shape=_launch_template,
        outputs=lambda resource: {
            "arn": resource.arn("ec2", f"launch-template/{resource.id}"),
            "latestVersion": resource.find("LaunchTemplate.LatestVersionNumber"),
            "defaultVersion": resource.find("LaunchTemplate.DefaultVersionNumber"),
        },
        no_effect={"updateDefaultVersion": "a new template's only version is its default"},
    ),
    "aws:ec2/placementGroup:PlacementGroup": Spec(
        "ec2.create_placement_group",
        "=GroupName",
        rename={"name": "GroupName"},
        autoname="name",
        tags="specification",
        outputs=output_paths(arn="PlacementGroup.GroupArn", placementGroupId="PlacementGroup.GroupId"),
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
        shape=_group,
        after=_group_extras,
        takes={
            "suspendedProcesses",
            "enabledMetrics",
            "metricsGranularity",
            "warmPool",
            "initialLifecycleHooks",
        },
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
    "aws:ec2/spotFleetRequest:SpotFleetRequest": Spec(
        "ec2.request_spot_fleet",
        "SpotFleetRequestId",
        tags="ec2",
        shape=_fleet,
        outputs=lambda resource: {
            "arn": resource.arn("ec2", f"spot-fleet-request/{resource.id}"),
            "spotRequestState": "active",
        },
        no_effect={
            "waitForFulfillment": _WAITS,
            "terminateInstancesOnDelete": _WAITS,
            "excessCapacityTerminationPolicy": "the local market terminates only on request",
            "replaceUnhealthyInstances": "instances come and go by join and leave alone",
        },
    ),
}
