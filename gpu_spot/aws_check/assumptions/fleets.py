"""Spot Fleets."""

from __future__ import annotations

import json
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import INSTANCE_TYPE, Falsified, Lab

_GUIDE: Final = 'EC2 user guide, "Modify a Spot Fleet request"'
_ACT: Final = "lambdas/aws/capacity/spot_fleet.py"
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "spotfleet.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}
_POLICY: Final = "arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"


def _role(lab: Lab) -> str:
    """Return the ARN of the run's role for fleets, made once."""
    iam, name = lab.clients("iam"), lab.name("fleet")
    try:
        return str(iam.get_role(RoleName=name)["Role"]["Arn"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_TRUST), Tags=lab.tags)
    iam.attach_role_policy(RoleName=name, PolicyArn=_POLICY)
    lab.clock.sleep(15)  # until IAM has told the services (IAM guide, "eventual consistency"; known)
    return str(made["Role"]["Arn"])


def _fleet(lab: Lab, what: str, **given: Any) -> str:
    """Request a fleet of the small type and return its id once it is active."""
    ec2, template = lab.clients("ec2"), lab.template(what)
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    overrides = [
        {"SubnetId": subnet, "InstanceType": INSTANCE_TYPE, "Priority": float(turn)}
        for turn, subnet in enumerate(lab.subnets.values(), 1)
    ]
    config = {
        "Type": "maintain",
        "TargetCapacity": 0,
        "OnDemandTargetCapacity": 0,
        "AllocationStrategy": "capacityOptimizedPrioritized",
        "ExcessCapacityTerminationPolicy": "noTermination",
        "IamFleetRole": _role(lab),
        "TerminateInstancesWithExpiration": True,
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        "TagSpecifications": lab.tagged("spot-fleet-request"),
    } | given
    fleet = str(ec2.request_spot_fleet(SpotFleetRequestConfig=config)["SpotFleetRequestId"])
    lab.until(lambda: _shown(lab, fleet)["SpotFleetRequestState"] == "active", "the fleet is active")
    return fleet


def _shown(lab: Lab, fleet: str) -> dict[str, Any]:
    found = lab.clients("ec2").describe_spot_fleet_requests(SpotFleetRequestIds=[fleet])
    shown: dict[str, Any] = found["SpotFleetRequestConfigs"][0]
    return shown


def _modify(lab: Lab, fleet: str, target: int, on_demand: int = 0) -> None:
    lab.clients("ec2").modify_spot_fleet_request(
        SpotFleetRequestId=fleet,
        TargetCapacity=target,
        OnDemandTargetCapacity=on_demand,
        ExcessCapacityTerminationPolicy="noTermination",
    )


def _members(lab: Lab, fleet: str) -> list[str]:
    found = lab.clients("ec2").describe_spot_fleet_instances(SpotFleetRequestId=fleet)["ActiveInstances"]
    return sorted(one["InstanceId"] for one in found)


@assumes(_GUIDE, _ACT, "one of the two stays", instances=1)
def fleet_targets_together(lab: Lab) -> str:
    """One modification sets target and on-demand target, and they are shown within minutes."""
    fleet = _fleet(lab, "targets")
    _modify(lab, fleet, 1, 1)
    asked = lab.clock.now()

    def both() -> bool:
        config = _shown(lab, fleet)["SpotFleetRequestConfig"]
        return (config["TargetCapacity"], config["OnDemandTargetCapacity"]) == (1, 1)

    lab.until(both, "target 1, of it on-demand 1")
    return f"shown {lab.clock.now() - asked:.0f} s after the change"


@assumes(
    "ModifySpotFleetRequest; jenkinsci/ec2-fleet-plugin #159",
    _ACT,
    "the second change is accepted",
    instances=1,
)
def fleet_not_twice(lab: Lab) -> str:
    """A fleet that is being modified refuses another change with FleetNotInModifiableState."""
    fleet = _fleet(lab, "twice")
    _modify(lab, fleet, 1)
    return lab.refused(lambda: _modify(lab, fleet, 0), "FleetNotInModifiableState", "modif")


@assumes(_GUIDE, _ACT, "a member goes", instances=1)
def fleet_keeps_its_members(lab: Lab) -> str:
    """With noTermination a lower target ends no member."""
    fleet = _fleet(lab, "kept", TargetCapacity=1)
    before = lab.until(lambda: _members(lab, fleet), "a member")
    lab.until(lambda: _shown(lab, fleet)["SpotFleetRequestState"] == "active", "the fleet is active")
    _modify(lab, fleet, 0)
    lab.clock.sleep(120)
    if _members(lab, fleet) != before:
        raise Falsified(f"{before} became {_members(lab, fleet)}")
    return "the member was there 120 s later"


@assumes(_GUIDE, "infra/schema/capacity.py", "the change is accepted", instances=1)
def fleet_of_a_request(lab: Lab) -> str:
    """A fleet of type request cannot be modified."""
    fleet = _fleet(lab, "request", Type="request", TargetCapacity=1)
    return lab.refused(lambda: _modify(lab, fleet, 2), "maintain", "request", "modif")


@assumes("RequestSpotFleet, TagSpecifications", "infra/iam/controller_statements.py", "the tag is missing")
def fleet_tags(lab: Lab) -> str:
    """A fleet shows the tags of its request, by which permissions to modify it are given."""
    lab.is_tagged(_shown(lab, _fleet(lab, "tagged")))
    return "the tag of the request"


@assumes(
    "RequestSpotFleet, LaunchTemplateOverrides", "infra/components/capacity/spot_fleet.py", "others are shown"
)
def fleet_priorities(lab: Lab) -> str:
    """Priorities of overrides start at 1 and are kept."""
    fleet = _fleet(lab, "priorities")
    [launch] = _shown(lab, fleet)["SpotFleetRequestConfig"]["LaunchTemplateConfigs"]
    found = [one.get("Priority") for one in launch["Overrides"]]
    if found != [float(turn) for turn in range(1, len(lab.subnets) + 1)]:
        raise Falsified(f"priorities are {found}")
    return f"1 to {len(found)} as given"


@assumes(
    "DescribeSpotFleetRequestHistory",
    "lambdas/core/launch_failures.py",
    "nothing is told in ten minutes",
    unplayable="the texts are what is to be learnt",
)
def fleet_tells_of_a_shortage(lab: Lab) -> str:
    """What a fleet cannot launch is told in its history, as an error or information with a text."""
    # Ask for spot below any price: the fleet then tells why it launches nothing.
    fleet = _fleet(lab, "shortage", TargetCapacity=1, SpotPrice="0.0001")

    def told() -> list[str] | None:
        history = lab.clients("ec2").describe_spot_fleet_request_history(
            SpotFleetRequestId=fleet, StartTime=0
        )["HistoryRecords"]
        found = [
            f"{one['EventType']} {one['EventInformation'].get('EventSubType')}: "
            f"{one['EventInformation'].get('EventDescription', '')}"
            for one in history
            if one["EventType"] in ("error", "information")
        ]
        return found or None

    return " | ".join(lab.until(told, "an event", 600))[:300]
