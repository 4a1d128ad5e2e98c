"""Groups and fleets with weighted instances count capacity like AWS."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.core.model import GroupRole
from pulumi_on_moto.fixes.fleets.request import FleetRequest
from tests.live.world import Running

WEIGHTS = {"g5.xlarge": 1, "g6.xlarge": 4}


@pytest.fixture
def weighed(running: Running) -> Iterator[Running]:
    """The sample's groups, its second type with four times the weight of its first."""
    group = running.cloud._instances.group(running.cloud.group("inference").primary)
    policy = group.mixed_instances_policy
    plain = policy["LaunchTemplate"]
    heavy = [
        {**override, "WeightedCapacity": str(WEIGHTS[override["InstanceType"]])}
        for override in plain["Overrides"]
    ]
    group.mixed_instances_policy = {**policy, "LaunchTemplate": {**plain, "Overrides": heavy}}
    yield running
    group.mixed_instances_policy = policy


def test_a_member_shows_its_weight_and_takes_it_along(weighed: Running) -> None:
    weighed.want(5, GroupRole.PRIMARY)
    small, big = weighed.launch("g5.xlarge"), weighed.launch("g6.xlarge")
    shown = {
        instance["InstanceId"]: instance["WeightedCapacity"] for instance in weighed.primary["Instances"]
    }
    assert shown == {small: "1", big: "4"}
    weighed.terminate(big)
    assert weighed.primary["DesiredCapacity"] == 1


def test_a_release_does_not_go_below_the_minimum(weighed: Running) -> None:
    weighed.want(3, GroupRole.PRIMARY)
    big = weighed.launch("g6.xlarge")
    with pytest.raises(ClientError, match="violate group's min size"):
        weighed.terminate(big)
    assert weighed.primary["DesiredCapacity"] == 3


def test_a_group_terminates_no_instance_that_it_needs_for_its_capacity(weighed: Running) -> None:
    weighed.want(5, GroupRole.PRIMARY)
    small, big = weighed.launch("g5.xlarge"), weighed.launch("g6.xlarge")
    weighed.want(3, GroupRole.PRIMARY)
    ending = {instance["InstanceId"]: instance["LifecycleState"] for instance in weighed.primary["Instances"]}
    assert ending == {small: "Terminating:Wait", big: "InService"}


def test_members_of_a_group_without_weights_show_none(running: Running) -> None:
    running.launch("g6.xlarge")
    assert not any("WeightedCapacity" in instance for instance in running.primary["Instances"])


@pytest.mark.parametrize(
    ("weights", "problem"),
    [(["4", None], "all overrides or none"), (["4", "1000"], "1 to 999"), (["4", "0.5"], "1 to 999")],
)
def test_weights_that_aws_rejects_are_rejected(
    running: Running, weights: list[str | None], problem: str
) -> None:
    specification = running.primary["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    overrides: list[Any] = [
        {"InstanceType": kind} if weight is None else {"InstanceType": kind, "WeightedCapacity": weight}
        for kind, weight in zip(WEIGHTS, weights, strict=True)
    ]
    template = {"LaunchTemplateSpecification": specification, "Overrides": overrides}
    with pytest.raises(ClientError, match=problem):
        running.clients("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName="refused",
            MinSize=0,
            MaxSize=1,
            AvailabilityZones=["us-west-2a"],
            MixedInstancesPolicy={"LaunchTemplate": template},
        )


def test_a_fleet_is_fulfilled_by_weight() -> None:
    overrides = [{"InstanceType": kind, "WeightedCapacity": weight} for kind, weight in WEIGHTS.items()]
    config = {"TargetCapacity": 6, "LaunchTemplateConfigs": [{"Overrides": overrides}]}
    fleet = FleetRequest("sfr-1", config, datetime.now(UTC))
    kinds = [("g5.xlarge", "normal"), ("g6.xlarge", "spot"), ("g6.xlarge", "spot")]
    fleet.members = {
        str(n): SimpleNamespace(instance_type=kind, lifecycle=paid) for n, (kind, paid) in enumerate(kinds)
    }
    shown = fleet.shown()
    assert shown["ActivityStatus"] == "fulfilled"
    assert shown["SpotFleetRequestConfig"]["FulfilledCapacity"] == 9.0
    assert shown["SpotFleetRequestConfig"]["OnDemandFulfilledCapacity"] == 1.0
