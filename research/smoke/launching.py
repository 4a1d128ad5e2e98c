"""Beliefs about launches: what is refused and in which words, templates, warm pools, fleets."""

from __future__ import annotations

import uuid
from typing import Any, Final

from lambdas.core.launch_failures import find_kind
from lambdas.core.model import LaunchFailureKind
from research.smoke.bed import IMAGE_PARAMETER, INSTANCE_TYPE, Bed, Falsified, belief

_FAILURES: Final = "lambdas/core/launch_failures.py"
_GROUPS: Final = "lambdas/aws/capacity/auto_scaling.py"
_FLEETS: Final = "lambdas/aws/capacity/spot_fleet.py"
_TEMPLATES: Final = "infra/program/entries/group.py"
_FLEET_POLICY: Final = "policy/service-role/AmazonEC2SpotFleetTaggingRole"
_PRICE: Final = "0.0001"
"""A maximum price in US dollars an hour that is below every Spot price."""


def _expect_kind(text: str, kind: LaunchFailureKind) -> str:
    """Raise ``Falsified`` unless a message has a kind for the controller; return the message."""
    if find_kind(text) is not kind:
        raise Falsified(f"{find_kind(text)} instead of {kind}: {text}")
    return text


def _dry_run(bed: Bed, **changes: Any) -> str:
    """Return the refusal of a launch that would not be made anyway."""
    launch = {"ImageId": bed.image, "InstanceType": INSTANCE_TYPE, "MinCount": 1, "MaxCount": 1} | changes
    subnet = next(iter(bed.subnets.values()))
    return bed.refusal(lambda: bed.clients("ec2").run_instances(**launch, SubnetId=subnet, DryRun=True), "")


@belief(_FAILURES)
def wrong_images(bed: Bed) -> str:
    """An image that is unknown, or of another architecture, is refused in a configuration error's words."""
    texts = (_dry_run(bed, ImageId="ami-0123456789abcdef0"), _dry_run(bed, InstanceType="t4g.nano"))
    return " / ".join(_expect_kind(text, LaunchFailureKind.CONFIGURATION) for text in texts)


@belief(_TEMPLATES)
def warm_pool_by_image_id(bed: Bed) -> str:
    """A group may have a warm pool if its template names an image id, and none with resolve:ssm:."""
    client, group = bed.clients("autoscaling"), bed.group("pool")
    client.put_warm_pool(AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=0)
    if not client.describe_warm_pool(AutoScalingGroupName=group).get("WarmPoolConfiguration"):
        raise Falsified("the group has no warm pool")
    template = bed.template("parameter", f"resolve:ssm:{IMAGE_PARAMETER}")
    group = bed.group("parameter-pool", LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"})
    return bed.refusal(
        lambda: client.put_warm_pool(AutoScalingGroupName=group, MinSize=0),
        *("parameter", "resolve:ssm", "warm pool"),
    )


@belief("infra/components/capacity/overrides.py")
def overrides_have_templates(bed: Bed) -> str:
    """Each override of a mixed group may name a launch template, and so an image, of its own."""
    names = [bed.template("first"), bed.template("second")]
    first, second = ({"LaunchTemplateName": name, "Version": "1"} for name in names)
    overrides = [
        {"InstanceType": INSTANCE_TYPE},
        {"InstanceType": "t3.micro", "LaunchTemplateSpecification": second},
    ]
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": first, "Overrides": overrides}}
    group = bed.group("mixed", MixedInstancesPolicy=policy)
    stored = bed.described(group)["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    templates = [item.get("LaunchTemplateSpecification", {}).get("LaunchTemplateName") for item in stored]
    if templates != [None, names[1]]:
        raise Falsified(f"stored are {templates}")
    return "the second override has the second template"


def _launch(bed: Bed, group: str, zone: str, retry: str) -> Any:
    """Ask for an instance of a group in a zone; return the response."""
    return bed.clients("autoscaling").launch_instances(
        AutoScalingGroupName=group,
        RequestedCapacity=1,
        AvailabilityZones=[zone],
        ClientToken=str(uuid.uuid4()),
        RetryStrategy=retry,
    )


@belief(_FAILURES)
def shortage_of_a_group(bed: Bed) -> str:
    """A launch that Spot refuses for its price is a failed activity, in words of missing capacity.

    By LaunchInstances without a retry it changes nothing.
    """
    specification = {"LaunchTemplateName": bed.template("priced"), "Version": "1"}
    templates = {"LaunchTemplateSpecification": specification, "Overrides": [{"InstanceType": INSTANCE_TYPE}]}
    shares = {"OnDemandPercentageAboveBaseCapacity": 0, "SpotMaxPrice": _PRICE}
    policy = {"LaunchTemplate": templates, "InstancesDistribution": shares}
    group, client = bed.group("priced-group", MixedInstancesPolicy=policy), bed.clients("autoscaling")
    tried = _launch(bed, group, max(bed.subnets), "none")
    if tried["Instances"] or bed.described(group)["DesiredCapacity"]:
        raise Falsified("LaunchInstances without a retry raised the desired capacity")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)

    def failed() -> str | None:
        activities = client.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
        return next((item["StatusMessage"] for item in activities if item["StatusCode"] == "Failed"), None)

    return _expect_kind(bed.wait_until(failed, "a failed activity", 600), LaunchFailureKind.CAPACITY)


@belief(_GROUPS)
def launch_in_a_zone(bed: Bed) -> str:
    """LaunchInstances starts an instance in the zone and raises the desired capacity by one."""
    group, zone = bed.group("zone"), max(bed.subnets)
    _launch(bed, group, zone, "retry-with-group-configuration")
    [member] = bed.wait_until(lambda: bed.described(group)["Instances"], "an instance")
    desired = bed.described(group)["DesiredCapacity"]
    if (member["AvailabilityZone"], desired) != (zone, 1):
        raise Falsified(f"it is in {member['AvailabilityZone']}, the desired capacity is {desired}")
    return f"one instance in {zone}, desired capacity 1"


@belief(_FLEETS)
def targets_of_a_fleet(bed: Bed) -> str:
    """ModifySpotFleetRequest sets target and On-Demand target at once, and starts what is missing."""
    ec2, fleet = bed.clients("ec2"), _fleet(bed, "targets")
    ec2.modify_spot_fleet_request(
        SpotFleetRequestId=fleet,
        TargetCapacity=1,
        OnDemandTargetCapacity=1,
        ExcessCapacityTerminationPolicy="noTermination",
    )

    def instances() -> list[Any] | None:
        config = ec2.describe_spot_fleet_requests(SpotFleetRequestIds=[fleet])["SpotFleetRequestConfigs"][0]
        targets = config["SpotFleetRequestConfig"]
        if (targets["TargetCapacity"], targets["OnDemandTargetCapacity"]) != (1, 1):
            return None
        active: list[Any] = ec2.describe_spot_fleet_instances(SpotFleetRequestId=fleet)["ActiveInstances"]
        return active

    return f"targets 1 and 1, {len(bed.wait_until(instances, 'an instance', 600))} instance"


@belief(_FAILURES)
def shortage_of_a_fleet(bed: Bed) -> str:
    """The history of a fleet says in words of missing capacity that its price is too low."""
    ec2, fleet = bed.clients("ec2"), _fleet(bed, "price", TargetCapacity=1, SpotPrice=_PRICE)

    def failures() -> list[str] | None:
        records = ec2.describe_spot_fleet_request_history(SpotFleetRequestId=fleet, StartTime=0)
        errors = [it["EventInformation"] for it in records["HistoryRecords"] if it["EventType"] == "error"]
        return [f"{it.get('EventSubType')}: {it.get('EventDescription', '')}" for it in errors] or None

    return _expect_kind(bed.wait_until(failures, "an error", 600)[0], LaunchFailureKind.CAPACITY)


def _fleet(bed: Bed, suffix: str, **options: Any) -> str:
    """Request a fleet of the small type and return its id once it is active."""
    iam, ec2 = bed.clients("iam"), bed.clients("ec2")
    of_the_run = {
        "StringEquals": {"aws:SourceAccount": bed.caller[1]},
        "ArnLike": {"aws:SourceArn": bed.arn("ec2", "spot-fleet-request/sfr-*")},
    }
    role = bed.role(suffix, {"Service": "spotfleet.amazonaws.com"}, Condition=of_the_run)
    tagging = f"arn:{bed.caller[0]}:iam::aws:{_FLEET_POLICY}"
    iam.attach_role_policy(RoleName=role.rpartition("/")[2], PolicyArn=tagging)
    bed.sleep(15)  # IAM is eventually consistent
    specification = {"LaunchTemplateName": bed.template(suffix), "Version": "1"}
    overrides = [{"SubnetId": subnet, "InstanceType": INSTANCE_TYPE} for subnet in bed.subnets.values()]
    config = {
        "Type": "maintain",
        "TargetCapacity": 0,
        "OnDemandTargetCapacity": 0,
        "IamFleetRole": role,
        "TerminateInstancesWithExpiration": True,
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        "TagSpecifications": bed.tag_specifications("spot-fleet-request"),
    } | options
    fleet = str(ec2.request_spot_fleet(SpotFleetRequestConfig=config)["SpotFleetRequestId"])
    bed.record.add(kind="fleet", name=fleet)

    def active() -> bool:
        configs = ec2.describe_spot_fleet_requests(SpotFleetRequestIds=[fleet])["SpotFleetRequestConfigs"]
        return bool(configs[0]["SpotFleetRequestState"] == "active")

    bed.wait_until(active, "the fleet is active")
    return fleet
