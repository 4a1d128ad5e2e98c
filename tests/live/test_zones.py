"""``LaunchInstances``: validation errors, zones without capacity, and successful launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.autoscaling.models import autoscaling_backends

from lambdas.core.model import GroupRole
from pulumi_on_moto.emulator import ACCOUNT
from tests.live.world import Running

HOME = "us-west-2b"


@pytest.fixture
def fallback(running: Running) -> Iterator[dict[str, Any]]:
    """An order of one to the fallback, which has no warm pool meanwhile."""
    autoscaling, group = running.clients("autoscaling"), {"AutoScalingGroupName": running.name()}
    before = autoscaling.describe_warm_pool(**group)["WarmPoolConfiguration"]
    autoscaling.delete_warm_pool(**group, ForceDelete=True)
    yield {**group, "RequestedCapacity": 1, "AvailabilityZones": [HOME]}
    autoscaling.put_warm_pool(
        **group, **{key: before[key] for key in ("MaxGroupPreparedCapacity", "MinSize", "PoolState")}
    )


def selling(running: Running, zone: str) -> None:
    """Let the market sell one type in one zone."""

    def buy(asked: str, role: GroupRole) -> str | None:
        if asked != zone:
            return None
        return running.buy(asked, role)

    running.cloud.buy_by_zone("inference", buy)


def launch(running: Running, order: dict[str, Any], **changes: Any) -> Any:
    return running.clients("autoscaling").launch_instances(**{**order, **changes})


def test_a_launch_raises_the_desired_capacity(running: Running, fallback: dict[str, Any]) -> None:
    selling(running, HOME)
    [message] = launch(running, fallback)["Instances"]
    assert (message["AvailabilityZone"], message["MarketType"]) == (HOME, "OnDemand")
    assert running.cloud.alive("inference", GroupRole.FALLBACK) == set(message["InstanceIds"])
    assert running.instance(message["InstanceIds"][0])["Placement"]["AvailabilityZone"] == HOME
    assert running.cloud.desired("inference")[1] == 1


@pytest.mark.parametrize(("strategy", "desired"), [("none", 0), ("retry-with-group-configuration", 1)])
def test_a_zone_without_capacity_raises_the_desired_capacity_on_request(
    running: Running, fallback: dict[str, Any], strategy: str, desired: int
) -> None:
    selling(running, "us-west-2a")
    answer = launch(running, fallback, RetryStrategy=strategy)
    assert answer["Instances"] == []
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InsufficientInstanceCapacity"]
    assert running.cloud.alive("inference", GroupRole.FALLBACK) == set()
    assert running.cloud.desired("inference")[1] == desired


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"AvailabilityZones": ["us-west-2d"]}, "'us-west-2d' is not one of the group's"),
        ({"AvailabilityZones": []}, "needs one of them"),
        ({"RequestedCapacity": 100}, "above max value"),
    ],
)
def test_invalid_requests_are_rejected(
    running: Running, fallback: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    selling(running, HOME)
    with pytest.raises(ClientError, match=message):
        launch(running, fallback, **changes)


def test_it_takes_no_group_with_a_warm_pool(running: Running) -> None:
    order = {"AutoScalingGroupName": running.name(), "RequestedCapacity": 1, "AvailabilityZones": [HOME]}
    with pytest.raises(ClientError, match="warm pool"):
        launch(running, order)


@pytest.mark.parametrize(("share", "base", "takes"), [(50, 0, False), (0, 1, False), (0, 0, True)])
def test_it_takes_no_group_that_mixes_spot_and_on_demand(
    running: Running,
    fallback: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    share: int,
    base: int,
    takes: bool,
) -> None:
    selling(running, HOME)
    group = autoscaling_backends[ACCOUNT][running.clients.region].autoscaling_groups[running.name()]
    distribution = group.mixed_instances_policy["InstancesDistribution"]
    monkeypatch.setitem(distribution, "OnDemandPercentageAboveBaseCapacity", share)
    monkeypatch.setitem(distribution, "OnDemandBaseCapacity", base)
    if takes:
        assert launch(running, fallback)["Instances"]
    else:
        with pytest.raises(ClientError, match="alone"):
            launch(running, fallback)
