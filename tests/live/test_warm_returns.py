"""Instances return to the fallback's warm pool at a scale-in and start from there again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import CapacityChange
from lambdas.core.model import GroupRole
from tests.core.build import group as make_group
from tests.live.test_scale_in import hooked, protecting
from tests.live.world import START, Running, bodies

GROUP = make_group("inference", target=2, maximum=6)


@pytest.fixture
def pooled(running: Running) -> Iterator[Running]:
    """A fallback that has two instances together with its pool, takes back who leaves, and drains it."""
    autoscaling, group = running.clients("autoscaling"), {"AutoScalingGroupName": running.name()}
    before = autoscaling.describe_warm_pool(**group)["WarmPoolConfiguration"]
    reuse = {"MaxGroupPreparedCapacity": 2, "MinSize": 0, "InstanceReusePolicy": {"ReuseOnScaleIn": True}}
    autoscaling.put_warm_pool(**group, **reuse)
    with protecting(running), hooked(running):
        yield running
    autoscaling.put_warm_pool(
        **group, **{key: before[key] for key in ("MaxGroupPreparedCapacity", "MinSize", "PoolState")}
    )


def warm(running: Running) -> tuple[str, ...]:
    return running.cloud.warm("inference")


def in_service(running: Running, count: int) -> list[str]:
    """Start so many out of the filled pool."""
    running.cloud.fill_warm_pools()
    running.want(count)
    started = [running.cloud.start_warm("inference", instance) for instance in warm(running)[:count]]
    running.cloud.heartbeat(started)
    return started


def release(running: Running, *going: str) -> None:
    """As the controller does."""
    desired = running.cloud.desired("inference")[1]
    AutoScalingService(running.clients("autoscaling")).apply(
        running.name(), CapacityChange(desired, desired, going, freed_slots=len(going)), GROUP
    )


def pool(running: Running) -> list[tuple[str, str]]:
    shown = running.clients("autoscaling").describe_warm_pool(AutoScalingGroupName=running.name())
    return [(instance["InstanceId"], instance["LifecycleState"]) for instance in shown["Instances"]]


def test_a_release_drains_and_then_waits_in_the_pool(pooled: Running) -> None:
    remaining, gone = in_service(pooled, 2)
    assert warm(pooled) == ()
    bodies(pooled)
    release(pooled, gone)
    assert pooled.members()[gone]["LifecycleState"] == "Warmed:Pending:Wait"
    assert pooled.cloud.alive("inference", GroupRole.FALLBACK) == {remaining}
    assert pooled.instance(gone)["State"]["Name"] == "running"
    [waits] = [body["detail"] for body in bodies(pooled) if "Lifecycle" in body["detail-type"]]
    assert (waits["Origin"], waits["Destination"]) == ("AutoScalingGroup", "WarmPool")
    pooled.cloud.set_time(START + 30)  # drainSeconds is 30
    pooled.cloud.let_go("inference")
    assert set(pooled.members()) == {remaining}
    assert pool(pooled) == [(gone, "Warmed:Stopped")]
    assert pooled.instance(gone)["State"]["Name"] == "stopped"
    assert pooled.cloud.desired("inference")[1] == 1


def test_a_returned_instance_starts_and_reports_again(pooled: Running) -> None:
    [gone] = in_service(pooled, 1)
    release(pooled, gone)
    pooled.cloud.set_time(START + 30)
    pooled.cloud.let_go("inference")
    others = set(warm(pooled)) - {gone}
    assert len(others) == 1  # a started warm instance is not replaced
    pooled.cloud.set_time(START + 600)
    pooled.want(1)
    pooled.cloud.start_warm("inference", gone)
    pooled.cloud.heartbeat([gone])
    assert pooled.members()[gone]["ProtectedFromScaleIn"]
    rows = pooled.clients("dynamodb").scan(TableName=pooled.cloud.registry.table)["Items"]
    assert {row["since"]["N"] for row in rows if row["instance"]["S"] == gone} == {str(int(START) + 600)}


def test_instances_beyond_the_pool_size_are_terminated(pooled: Running) -> None:
    pooled.want(3)
    cold = [pooled.buy() for _ in range(3)]
    release(pooled, *cold)
    pooled.cloud.set_time(START + 30)
    pooled.cloud.let_go("inference")
    assert sorted(pooled.instance(one)["State"]["Name"] for one in cold) == [
        "stopped",
        "stopped",
        "terminated",
    ]
    assert len(warm(pooled)) == 2


def test_a_hook_that_times_out_returns_it_too(pooled: Running) -> None:
    [gone] = in_service(pooled, 1)
    release(pooled, gone)
    pooled.cloud.set_time(START + 301)
    assert gone in warm(pooled)


def test_a_terminated_instance_does_not_return(pooled: Running) -> None:
    [gone] = in_service(pooled, 1)
    pooled.terminate(gone)
    pooled.cloud.set_time(START + 30)
    pooled.cloud.let_go("inference")
    assert pooled.instance(gone)["State"]["Name"] == "terminated"


def test_a_group_shows_its_reuse_policy(pooled: Running) -> None:
    assert pooled.described()["WarmPoolConfiguration"]["InstanceReusePolicy"] == {"ReuseOnScaleIn": True}
    assert pooled.cloud.takes_back("inference")
