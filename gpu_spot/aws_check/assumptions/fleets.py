"""Spot Fleets."""

from __future__ import annotations

import json
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import INSTANCE_TYPE, AwsTestBed, Falsified

_GUIDE: Final = 'EC2 user guide, "Modify a Spot Fleet request"'
_MODULE: Final = "lambdas/aws/capacity/spot_fleet.py"
_TRUST: Final[dict[str, Any]] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "spotfleet.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}
_POLICY: Final = "arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"


def _bound_trust(test_bed: AwsTestBed) -> dict[str, Any]:
    """Return the stack's trust policy: fleets of this account and region only."""
    condition = {
        "StringEquals": {"aws:SourceAccount": test_bed.account.id},
        "ArnLike": {"aws:SourceArn": test_bed.arn("ec2", "spot-fleet-request/sfr-*")},
    }
    [statement] = _TRUST["Statement"]
    return {**_TRUST, "Statement": [{**statement, "Condition": condition}]}


def _fleet_role(test_bed: AwsTestBed) -> str:
    """Return the ARN of the run's role for fleets, created once."""
    iam, name = test_bed.clients("iam"), test_bed.resource_name("fleet")
    try:
        return str(iam.get_role(RoleName=name)["Role"]["Arn"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
    response = iam.create_role(
        RoleName=name, AssumeRolePolicyDocument=json.dumps(_bound_trust(test_bed)), Tags=test_bed.tags
    )
    iam.attach_role_policy(RoleName=name, PolicyArn=_POLICY)
    test_bed.clock.sleep(15)  # IAM is eventually consistent (IAM guide, "eventual consistency"; known)
    return str(response["Role"]["Arn"])


def _create_fleet(test_bed: AwsTestBed, suffix: str, **options: Any) -> str:
    """Request a fleet of the small type and return its id once it is active."""
    ec2, template = test_bed.clients("ec2"), test_bed.template(suffix)
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    overrides = [
        {"SubnetId": subnet, "InstanceType": INSTANCE_TYPE, "Priority": float(priority)}
        for priority, subnet in enumerate(test_bed.subnets.values(), 1)
    ]
    config = {
        "Type": "maintain",
        "TargetCapacity": 0,
        "OnDemandTargetCapacity": 0,
        "AllocationStrategy": "capacityOptimizedPrioritized",
        "ExcessCapacityTerminationPolicy": "noTermination",
        "IamFleetRole": _fleet_role(test_bed),
        "TerminateInstancesWithExpiration": True,
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        "TagSpecifications": test_bed.tag_specifications("spot-fleet-request"),
    } | options
    fleet = str(ec2.request_spot_fleet(SpotFleetRequestConfig=config)["SpotFleetRequestId"])
    test_bed.wait_until(
        lambda: _describe_fleet(test_bed, fleet)["SpotFleetRequestState"] == "active", "the fleet is active"
    )
    return fleet


def _describe_fleet(test_bed: AwsTestBed, fleet: str) -> dict[str, Any]:
    response = test_bed.clients("ec2").describe_spot_fleet_requests(SpotFleetRequestIds=[fleet])
    fleet_config: dict[str, Any] = response["SpotFleetRequestConfigs"][0]
    return fleet_config


def _modify(test_bed: AwsTestBed, fleet: str, target: int, on_demand: int = 0) -> None:
    test_bed.clients("ec2").modify_spot_fleet_request(
        SpotFleetRequestId=fleet,
        TargetCapacity=target,
        OnDemandTargetCapacity=on_demand,
        ExcessCapacityTerminationPolicy="noTermination",
    )


def _members(test_bed: AwsTestBed, fleet: str) -> list[str]:
    instances = test_bed.clients("ec2").describe_spot_fleet_instances(SpotFleetRequestId=fleet)[
        "ActiveInstances"
    ]
    return sorted(instance["InstanceId"] for instance in instances)


@assumes(
    'EC2 user guide, "Spot Fleet permissions"; IAM user guide, "The confused deputy problem"',
    "infra/iam/aws_service_statements.py",
    "the fleet launches nothing",
    instances=1,
)
def fleet_with_a_bound_role(test_bed: AwsTestBed) -> str:
    """A fleet launches with a role that trusts fleets of one account and region only (aws:SourceArn)."""
    fleet = _create_fleet(test_bed, "bound", TargetCapacity=1)
    test_bed.wait_until(lambda: _members(test_bed, fleet), "a member")
    return "a member was launched"


@assumes(_GUIDE, _MODULE, "one of the two does not change", instances=1)
def fleet_targets_together(test_bed: AwsTestBed) -> str:
    """ModifySpotFleetRequest sets target capacity and On-Demand target capacity at once."""
    fleet = _create_fleet(test_bed, "targets")
    _modify(test_bed, fleet, 1, 1)
    requested_at = test_bed.clock.now()

    def both() -> bool:
        config = _describe_fleet(test_bed, fleet)["SpotFleetRequestConfig"]
        return (config["TargetCapacity"], config["OnDemandTargetCapacity"]) == (1, 1)

    test_bed.wait_until(both, "target 1 with On-Demand target 1")
    return f"visible {test_bed.clock.now() - requested_at:.0f} s after the change"


@assumes(
    "ModifySpotFleetRequest; jenkinsci/ec2-fleet-plugin #159",
    _MODULE,
    "the second change is accepted",
    instances=1,
)
def fleet_not_twice(test_bed: AwsTestBed) -> str:
    """A fleet that is being modified rejects another change with FleetNotInModifiableState."""
    fleet = _create_fleet(test_bed, "twice")
    _modify(test_bed, fleet, 1)
    return test_bed.expect_refusal(lambda: _modify(test_bed, fleet, 0), "FleetNotInModifiableState", "modif")


@assumes(_GUIDE, _MODULE, "a member is terminated", instances=1)
def fleet_keeps_its_members(test_bed: AwsTestBed) -> str:
    """With noTermination a lower target terminates no instance."""
    fleet = _create_fleet(test_bed, "kept", TargetCapacity=1)
    before = test_bed.wait_until(lambda: _members(test_bed, fleet), "a member")
    test_bed.wait_until(
        lambda: _describe_fleet(test_bed, fleet)["SpotFleetRequestState"] == "active", "the fleet is active"
    )
    _modify(test_bed, fleet, 0)
    test_bed.clock.sleep(120)
    if _members(test_bed, fleet) != before:
        raise Falsified(f"{before} became {_members(test_bed, fleet)}")
    return "the instance was running 120 s later"


@assumes(_GUIDE, "infra/schema/capacity.py", "the change is accepted", instances=1)
def fleet_of_a_request(test_bed: AwsTestBed) -> str:
    """A fleet of type request cannot be modified."""
    fleet = _create_fleet(test_bed, "request", Type="request", TargetCapacity=1)
    return test_bed.expect_refusal(lambda: _modify(test_bed, fleet, 2), "maintain", "request", "modif")


@assumes("RequestSpotFleet, TagSpecifications", "infra/iam/controller_statements.py", "the tag is missing")
def fleet_tags(test_bed: AwsTestBed) -> str:
    """DescribeSpotFleetRequests returns the tags of a fleet, which IAM conditions on modifications use."""
    test_bed.expect_tags(_describe_fleet(test_bed, _create_fleet(test_bed, "tagged")))
    return "the fleet has the tag"


@assumes(
    "RequestSpotFleet, LaunchTemplateOverrides",
    "infra/components/capacity/spot_fleet.py",
    "other priorities are returned",
)
def fleet_priorities(test_bed: AwsTestBed) -> str:
    """Priorities of overrides start at 1 and are stored."""
    fleet = _create_fleet(test_bed, "priorities")
    [launch] = _describe_fleet(test_bed, fleet)["SpotFleetRequestConfig"]["LaunchTemplateConfigs"]
    priorities = [override.get("Priority") for override in launch["Overrides"]]
    if priorities != [float(priority) for priority in range(1, len(test_bed.subnets) + 1)]:
        raise Falsified(f"priorities are {priorities}")
    return f"1 to {len(priorities)} as given"


@assumes(
    "DescribeSpotFleetRequestHistory",
    "lambdas/core/launch_failures.py",
    "no event within ten minutes",
    name="fleet-tells-of-a-shortage",
    unsupported_reason="the messages of AWS are what is tested",
)
def fleet_history_records_launch_failures(test_bed: AwsTestBed) -> str:
    """The history of a fleet records failed launches as error or information events with a description."""
    # A maximum price below every Spot price: the fleet records why it launches nothing.
    fleet = _create_fleet(test_bed, "shortage", TargetCapacity=1, SpotPrice="0.0001")

    def failure_events() -> list[str] | None:
        history = test_bed.clients("ec2").describe_spot_fleet_request_history(
            SpotFleetRequestId=fleet, StartTime=0
        )["HistoryRecords"]
        events = [
            f"{record['EventType']} {record['EventInformation'].get('EventSubType')}: "
            f"{record['EventInformation'].get('EventDescription', '')}"
            for record in history
            if record["EventType"] in ("error", "information")
        ]
        return events or None

    return " | ".join(test_bed.wait_until(failure_events, "an event", 600))[:300]
