"""Spot Fleets in the local cloud behave like AWS's; only the market launches and interrupts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts.group import config as group_config
from lambdas.core.model import GroupRole
from market.replay.groups import SPOT_REFUSAL
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from tests.live.world import START, Deployed, Running, bodies, empty

GROUP = "fleet"
PARAMETER = f"/gpu-spot/dev/groups/{GROUP}/config"
ROLE = "arn:aws:iam::123456789012:role/fleet"


def request(deployed: Deployed, **changes: Any) -> str:
    (template,) = deployed.deployment.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    subnets = deployed.deployment.of_type("aws:ec2/subnet:Subnet")
    overrides = [
        {"InstanceType": kind, "SubnetId": subnet.id}
        for kind in ("g5.xlarge", "g6.xlarge")
        for subnet in subnets
    ]
    config = {
        "IamFleetRole": ROLE,
        "TargetCapacity": 4,
        "Type": "maintain",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template.id, "Version": "1"},
                "Overrides": overrides,
            }
        ],
        "TagSpecifications": [
            {"ResourceType": "spot-fleet-request", "Tags": [{"Key": "gpu-spot:stack", "Value": "dev"}]}
        ],
        **changes,
    }
    reply = deployed.clients("ec2").request_spot_fleet(SpotFleetRequestConfig=config)
    return str(reply["SpotFleetRequestId"])


@pytest.fixture
def fleet(running: Running) -> Iterator[Running]:
    """The sample with a second group, whose primary side is a fleet; its fallback is the sample's."""
    ssm = running.clients("ssm")
    inference = ssm.get_parameter(Name=PARAMETER.replace(GROUP, "inference"))["Parameter"]["Value"]
    other = group_config.parse(inference)
    config = replace(
        other,
        kind="spot-fleet",
        primary=request(Deployed(running.clients, running.deployment)),
        slots={"g5.xlarge": 1, "g6.xlarge": 1},
        drain_seconds=0,
    )
    ssm.put_parameter(Name=PARAMETER, Type="String", Value=group_config.dumps(config))
    ssm.put_parameter(
        Name=PARAMETER.replace(GROUP, "inference"),
        Value=group_config.dumps(replace(other, fallback=None)),
        Overwrite=True,
    )
    try:
        cloud = LocalCloud(running.clients, running.deployment, running.clock)
        yield Running(running.clients, running.deployment, running.clock, cloud, GROUP)
    finally:
        ssm.delete_parameter(Name=PARAMETER)
        ssm.put_parameter(Name=PARAMETER.replace(GROUP, "inference"), Value=inference, Overwrite=True)
        running.cloud._instances.ec2.spot_fleet_requests.clear()
        empty(running)


def view(fleet: Running) -> GroupView:
    return fleet.cloud.group(GROUP)


def shown(fleet: Running) -> dict[str, Any]:
    ids = [view(fleet).primary]
    (found,) = fleet.clients("ec2").describe_spot_fleet_requests(SpotFleetRequestIds=ids)[
        "SpotFleetRequestConfigs"
    ]
    return found


def state_and_target(found: dict[str, Any]) -> tuple[str, int]:
    return found["SpotFleetRequestState"], found["SpotFleetRequestConfig"]["TargetCapacity"]


def records(fleet: Running, **arguments: Any) -> list[dict[str, Any]]:
    asked = {"SpotFleetRequestId": view(fleet).primary, "StartTime": "2023-11-01T00:00:00Z", **arguments}
    found = fleet.clients("ec2").describe_spot_fleet_request_history(**asked)["HistoryRecords"]
    return list(found)


def history(fleet: Running, **arguments: Any) -> list[tuple[str, str]]:
    return [
        (record["EventType"], record["EventInformation"]["EventSubType"])
        for record in records(fleet, **arguments)
    ]


def test_a_request_is_recorded_and_launches_nothing(fleet: Running) -> None:
    assert (tuple(sorted(view(fleet).zones)), view(fleet).instance_types) == (
        ("us-west-2a", "us-west-2b"),
        ("g5.xlarge", "g6.xlarge"),
    )
    assert fleet.cloud.group("inference").fallback is None
    assert fleet.cloud.alive(GROUP) == set()
    assert fleet.cloud.desired(GROUP) == (4, 0)
    found = shown(fleet)
    assert (found["SpotFleetRequestState"], found["ActivityStatus"]) == ("active", "pending_fulfillment")
    assert found["Tags"] == [{"Key": "gpu-spot:stack", "Value": "dev"}]
    config = found["SpotFleetRequestConfig"]
    assert (config["TargetCapacity"], config["OnDemandTargetCapacity"]) == (4, 0)
    assert config["FulfilledCapacity"] == 0.0
    assert len(config["LaunchTemplateConfigs"][0]["Overrides"]) == 4


def test_targets_move_together_and_only_as_aws_allows(fleet: Running) -> None:
    ec2, fleet_id = fleet.clients("ec2"), view(fleet).primary
    ec2.modify_spot_fleet_request(
        SpotFleetRequestId=fleet_id,
        TargetCapacity=6,
        OnDemandTargetCapacity=2,
        ExcessCapacityTerminationPolicy="noTermination",
    )
    assert fleet.cloud.desired(GROUP) == (6, 0)
    fleet.cloud.set_time(fleet.clock.now + 3)
    assert shown(fleet)["SpotFleetRequestConfig"]["OnDemandTargetCapacity"] == 2
    with pytest.raises(ClientError, match="OnDemandTargetCapacity 2 ≤ TargetCapacity 1 does not hold"):
        ec2.modify_spot_fleet_request(SpotFleetRequestId=fleet_id, TargetCapacity=1)
    once = request(Deployed(fleet.clients, fleet.deployment), Type="request")
    with pytest.raises(ClientError, match=f"{once} is not a modifiable fleet request type"):
        ec2.modify_spot_fleet_request(SpotFleetRequestId=once, TargetCapacity=1)
    with pytest.raises(ClientError, match="does not exist"):
        ec2.describe_spot_fleet_instances(SpotFleetRequestId="sfr-none")


def test_a_modifying_fleet_shows_the_old_target_and_rejects_another_modification(fleet: Running) -> None:
    ec2, fleet_id = fleet.clients("ec2"), view(fleet).primary
    ec2.modify_spot_fleet_request(SpotFleetRequestId=fleet_id, TargetCapacity=6)
    assert fleet.cloud.desired(GROUP) == (6, 0)  # the fleet itself has heard
    for _ in range(2):  # the second answer is a remembered one
        assert state_and_target(shown(fleet)) == ("modifying", 4)
    with pytest.raises(ClientError, match="FleetNotInModifiableState"):
        ec2.modify_spot_fleet_request(SpotFleetRequestId=fleet_id, TargetCapacity=5)
    fleet.cloud.set_time(START + 3)
    assert state_and_target(shown(fleet)) == ("active", 6)
    assert [subtype for _, subtype in history(fleet)] == ["active", "modify_in_progress", "modify_succeeded"]
    ec2.modify_spot_fleet_request(SpotFleetRequestId=fleet_id, TargetCapacity=5)


def test_a_shortage_is_reported_as_a_configuration_error(fleet: Running) -> None:
    fleet.cloud.refuse(GROUP, GroupRole.PRIMARY, SPOT_REFUSAL)
    assert history(fleet, EventType="error") == [("error", "spotFleetRequestConfigurationInvalid")]
    [record] = records(fleet, EventType="error")
    assert record["EventInformation"]["EventDescription"] == (
        "g5.xlarge, Linux/UNIX: There is no Spot capacity available that matches your request."
    )


def test_members_look_as_on_aws(fleet: Running) -> None:
    spot = fleet.launch("g6.xlarge", "us-west-2b")
    bought = fleet.buy(side=GroupRole.PRIMARY)
    seen = fleet.instance(spot)
    assert (seen["InstanceType"], seen["Placement"]["AvailabilityZone"]) == ("g6.xlarge", "us-west-2b")
    assert seen["InstanceLifecycle"] == "spot"
    tags = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    assert tags["aws:ec2spot:fleet-request-id"] == view(fleet).primary
    assert "aws:autoscaling:groupName" not in tags
    members = fleet.clients("ec2").describe_spot_fleet_instances(SpotFleetRequestId=view(fleet).primary)
    found = {member["InstanceId"]: member for member in members["ActiveInstances"]}
    assert found.keys() == {spot, bought} == fleet.cloud.alive(GROUP, GroupRole.PRIMARY)
    (spot_request,) = fleet.clients("ec2").describe_spot_instance_requests()["SpotInstanceRequests"]
    assert found[spot]["SpotInstanceRequestId"] == spot_request["SpotInstanceRequestId"]
    assert "SpotInstanceRequestId" not in found[bought]
    config = shown(fleet)["SpotFleetRequestConfig"]
    assert (config["FulfilledCapacity"], config["OnDemandFulfilledCapacity"]) == (2.0, 1.0)
    assert history(fleet, EventType="instanceChange") == [("instanceChange", "launched")] * 2


def test_members_are_listed_in_pages(fleet: Running) -> None:
    ids = {fleet.launch() for _ in range(3)}
    ec2, fleet_id = fleet.clients("ec2"), view(fleet).primary
    first = ec2.describe_spot_fleet_instances(SpotFleetRequestId=fleet_id, MaxResults=2)
    rest = ec2.describe_spot_fleet_instances(SpotFleetRequestId=fleet_id, NextToken=first["NextToken"])
    assert len(first["ActiveInstances"]) == 2
    assert {m["InstanceId"] for m in (*first["ActiveInstances"], *rest["ActiveInstances"])} == ids


def test_a_client_that_terminates_a_member_releases_it(fleet: Running) -> None:
    remaining, gone = (fleet.launch() for _ in range(2))
    for _ in range(2):  # the second time changes nothing
        fleet.clients("ec2").terminate_instances(InstanceIds=[gone])
        assert fleet.cloud.alive(GROUP) == {remaining}
    assert fleet.cloud.desired(GROUP) == (4, 0)
    assert history(fleet).count(("instanceChange", "terminated")) == 1
    requests = fleet.clients("ec2").describe_spot_instance_requests()["SpotInstanceRequests"]
    codes = {request["InstanceId"]: request["Status"]["Code"] for request in requests}
    assert codes == {remaining: "fulfilled", gone: "instance-terminated-by-user"}


def test_a_client_that_terminates_a_groups_instance_releases_it(fleet: Running) -> None:
    instance = fleet.buy()
    fleet.clients("ec2").terminate_instances(InstanceIds=[instance])
    assert fleet.cloud.alive(GROUP) == set()


def test_the_market_takes_and_the_target_stays(fleet: Running) -> None:
    instance = fleet.launch()
    fleet.cloud.notice(instance, START + 120)
    fleet.cloud.kill([instance])
    assert fleet.cloud.alive(GROUP) == set()
    assert fleet.cloud.desired(GROUP) == (4, 0)
    assert fleet.instance(instance)["StateReason"]["Code"] == "Server.SpotInstanceTermination"


@pytest.mark.parametrize(
    ("message", "subtype"),
    [
        (
            "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill",
            "spotFleetRequestConfigurationInvalid",
        ),
        ("Max spot instance count exceeded: MaxSpotInstanceCountExceeded", "spotInstanceCountLimitExceeded"),
        ("VcpuLimitExceeded: your current vCPU limit", "spotInstanceCountLimitExceeded"),
        ("UnauthorizedOperation: You are not authorized", "iamFleetRoleInvalid"),
        ("InvalidAMIID.NotFound: ami-1 does not exist", "allLaunchSpecsTemporarilyBlacklisted"),
        ("a message that AWS has not documented", "allLaunchSpecsTemporarilyBlacklisted"),
    ],
)
def test_errors_stand_in_the_history_and_a_lack_of_capacity_is_one(
    fleet: Running, message: str, subtype: str
) -> None:
    fleet.cloud.refuse(GROUP, GroupRole.PRIMARY, message)
    assert history(fleet, EventType="error") == [("error", subtype)]


def test_events_have_the_shape_that_aws_gives_them(fleet: Running) -> None:
    events = fleet.clients("events")
    warning = fleet.deployment.resource("aws:cloudwatch/eventRule:EventRule", "warning").id
    before = events.describe_rule(Name=warning)["EventPattern"]
    events.put_rule(Name=warning, EventPattern='{"source": ["aws.ec2spotfleet"]}')
    try:
        instance = fleet.launch()
        fleet.cloud.refuse(GROUP, GroupRole.PRIMARY, "UnauthorizedOperation: no")
        fleet.cloud.kill([instance])
        launched, error, terminated = bodies(fleet)
    finally:
        events.put_rule(Name=warning, EventPattern=before)
    resources = [f"arn:aws:ec2:us-west-2:123456789012:spot-fleet-request/{view(fleet).primary}"]
    for event, what in ((launched, "Instance Change"), (terminated, "Instance Change"), (error, "Error")):
        assert (event["detail-type"], event["resources"]) == (f"EC2 Spot Fleet {what}", resources)
    assert launched["detail"].keys() == {"instance-id", "description", "sub-type"}
    assert json.loads(launched["detail"]["description"])["availabilityZone"] == "us-west-2a"
    assert (launched["detail"]["sub-type"], terminated["detail"]["sub-type"]) == ("launched", "terminated")
    assert error["detail"] == {"description": "UnauthorizedOperation: no", "sub-type": "iamFleetRoleInvalid"}


def test_cancelling_ends_the_members(fleet: Running) -> None:
    fleet.launch()
    fleet.clients("ec2").cancel_spot_fleet_requests(
        SpotFleetRequestIds=[view(fleet).primary], TerminateInstances=True
    )
    assert fleet.cloud.alive(GROUP) == set()
    assert shown(fleet)["SpotFleetRequestState"] == "cancelled_terminating"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"OnDemandTargetCapacity": 5}, "OnDemandTargetCapacity 5 ≤ TargetCapacity 4 does not hold"),
        ({"LaunchTemplateConfigs": []}, "exactly one of LaunchTemplateConfigs and LaunchSpecifications"),
    ],
)
def test_invalid_requests_are_rejected_as_by_aws(
    running: Running, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ClientError, match=problem):
        request(Deployed(running.clients, running.deployment), **changes)
