"""Injected faults: lag, throttling, failed warm starts, cancelled and suspended launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.core.model import GroupRole, PurchaseOption
from market.replay.groups import SPOT_REFUSAL
from pulumi_on_moto.running.functions import Call
from pulumi_on_moto.running.throttling import Throttle
from rehearsal.cloud.fault_injection import FaultInjection
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.fleets import CloudFleet
from tests.live.world import START, Running

FILTERED = {"Filters": [{"Name": "instance-state-name", "Values": ["running"]}]}


@contextmanager
def hostile(running: Running, **switches: Any) -> Iterator[LocalCloud]:
    """Yield the cloud with some switches on; afterwards it is as kind as before."""
    try:
        yield LocalCloud(running.clients, running.deployment, running.clock, FaultInjection(**switches))
    finally:
        LocalCloud(running.clients, running.deployment, running.clock)


def launch(cloud: LocalCloud, side: GroupRole = GroupRole.PRIMARY) -> str:
    return cloud.launch("inference", side, "g5.xlarge", "us-west-2a", PurchaseOption.SPOT)


def described(running: Running) -> set[str]:
    reply = running.clients("ec2").describe_instances(**FILTERED)
    return {
        instance["InstanceId"]
        for reservation in reply["Reservations"]
        for instance in reservation["Instances"]
    }


def statuses(running: Running) -> list[str]:
    name = running.cloud.group("inference").primary
    found = running.clients("autoscaling").describe_scaling_activities(AutoScalingGroupName=name)
    return [activity["StatusCode"] for activity in found["Activities"]]


def test_a_member_is_listed_before_it_is_described(running: Running) -> None:
    with hostile(running, instances_lag_seconds=90.0) as cloud:
        first = launch(cloud)
        assert described(running) == {first}
        second = launch(cloud)
        assert {member["InstanceId"] for member in running.primary["Instances"]} == {first, second}
        cloud.set_time(START + 89)
        assert described(running) == {first}
        cloud.set_time(START + 90)
        assert described(running) == {first, second}


def test_a_desired_capacity_shows_some_seconds_after_it_was_set(running: Running) -> None:
    with hostile(running, groups_lag_seconds=5.0) as cloud:
        assert running.primary["DesiredCapacity"] == 2
        running.clients("autoscaling").set_desired_capacity(
            AutoScalingGroupName=running.cloud.group("inference").primary, DesiredCapacity=3
        )
        assert (running.primary["DesiredCapacity"], cloud.desired("inference")[0]) == (2, 3)
        cloud.set_time(START + 5)
        assert running.primary["DesiredCapacity"] == 3


@pytest.mark.parametrize(
    ("operation", "params", "burst", "refill"),
    [
        ("DescribeInstances", FILTERED, 100, 20),
        ("DescribeInstances", {}, 50, 10),
        ("DescribeSpotFleetRequests", {}, 50, 3),
        ("ModifySpotFleetRequest", {}, 50, 5),
        ("TerminateInstances", {}, 100, 5),
    ],
)
def test_each_api_has_its_bucket(operation: str, params: dict[str, Any], burst: int, refill: int) -> None:
    throttle, call = Throttle(), Call("controller", "ec2", operation, params)

    def granted(now: float) -> int:
        for count in range(1000):
            try:
                throttle.take(call, now)
            except ClientError:
                return count
        return 1000

    assert (granted(START), granted(START + 1), granted(START + 3600)) == (burst, refill, burst)
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        throttle.take(call, START + 3600)


def test_a_function_is_throttled_while_other_clients_use_all_tokens(running: Running) -> None:
    with hostile(running, throttled=1.0) as cloud:
        call = Call("controller", "autoscaling", "DescribeAutoScalingGroups", {})
        listener = running.deployment.functions.listener
        assert listener is not None
        listener(call)
        cloud.set_time(START + 60)
        with pytest.raises(ClientError, match="Throttling"):
            listener(call)
        listener(Call("controller", "dynamodb", "GetItem", {}))


def test_a_refused_warm_start_costs_the_instance(running: Running) -> None:
    running.cloud.fill_warm_pools()
    (lost,) = running.cloud.warm("inference")
    running.cloud.lose_warm("inference", lost)
    assert running.instance(lost)["State"]["Name"] == "terminated"
    assert running.cloud.warm("inference") == ()
    running.cloud.fill_warm_pools()
    (another,) = running.cloud.warm("inference")
    assert another != lost


def test_a_refused_launch_may_be_cancelled(running: Running) -> None:
    with hostile(running, cancelled=1.0) as cloud:
        cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
        assert statuses(running) == ["Cancelled"]


def test_after_a_day_of_failed_launches_launching_is_suspended_until_resumed(running: Running) -> None:
    cloud, name = running.cloud, running.cloud.group("inference").primary
    cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
    cloud.set_time(START + 3600)
    launch(cloud)
    cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
    cloud.set_time(START + 3600 + 86_399)
    assert not cloud.suspended("inference", GroupRole.PRIMARY)
    cloud.set_time(START + 3600 + 86_400)
    processes = {process["ProcessName"] for process in running.primary["SuspendedProcesses"]}
    assert processes == {"AZRebalance", "Launch"}
    fleet = CloudFleet(cloud, "inference", None)  # type: ignore[arg-type]
    assert fleet._launchable(GroupRole.PRIMARY, 2) == 1
    running.clients("autoscaling").resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    assert fleet._launchable(GroupRole.PRIMARY, 2) == 2


@pytest.mark.parametrize(
    ("switches", "problem"),
    [
        ({"throttled": 2.0}, "throttled is 2.0, allowed: 0 to 1"),
        ({"groups_lag_seconds": -1.0}, "groups_lag_seconds is -1.0, allowed: a number ≥ 0"),
        ({"overlap": 0}, "overlap is 0, allowed: the number of a call"),
    ],
)
def test_a_switch_beyond_its_bounds_is_named(switches: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FaultInjection(**switches)
