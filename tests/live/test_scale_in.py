"""Scale-in of a group: selection of instances, protection, hooks, notices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from botocore.exceptions import ClientError

from lambdas.core.model import GroupRole
from tests.live.world import LAUNCHING, START, Running, bodies, hooked

A, B = "us-west-2a", "us-west-2b"


@contextmanager
def changed(running: Running, setting: str, value: object, before: object) -> Iterator[None]:
    """Let the fallback have another setting while the body runs."""
    autoscaling = running.clients("autoscaling")
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=running.name(), **{setting: value})
    try:
        yield
    finally:
        autoscaling.update_auto_scaling_group(AutoScalingGroupName=running.name(), **{setting: before})


def protecting(running: Running) -> AbstractContextManager[None]:
    return changed(running, "NewInstancesProtectedFromScaleIn", True, False)


def test_a_scale_in_terminates_members_of_the_fullest_zone_near_their_billing_hour(running: Running) -> None:
    running.want(3)
    early = running.buy(A)
    running.cloud.set_time(START + 1200)
    late = running.buy(A)
    alone = running.buy(B)
    running.cloud.set_time(START + 4200)  # ``early`` is ten minutes into its second hour, ``late`` fifty
    running.want(2)
    assert set(running.members()) == {early, alone}
    assert running.instance(late)["State"]["Name"] == "terminated"
    assert "shrinking the capacity from 3 to 2" in running.newest()["Cause"]
    assert bodies(running)[-1]["detail-type"] == "EC2 Instance Terminate Successful"


def test_of_a_mixed_group_the_purchase_option_that_has_too_many_goes_first(running: Running) -> None:
    spot, owned = running.launch(), running.buy(side=GroupRole.PRIMARY)
    running.want(1, GroupRole.PRIMARY)  # all spot, by its distribution
    states = {one: member["LifecycleState"] for one, member in running.members(GroupRole.PRIMARY).items()}
    assert states == {spot: "InService", owned: "Terminating:Wait"}
    running.want(2, GroupRole.PRIMARY)


def test_a_lowered_maximum_ends_members(running: Running) -> None:
    running.want(2)
    for zone in (A, B):
        running.buy(zone)
    with changed(running, "MaxSize", 1, 6):
        assert (running.cloud.desired("inference")[1], len(running.members())) == (1, 1)


def test_a_maximum_below_the_desired_capacity_lowers_it_without_instances(running: Running) -> None:
    running.want(4)
    with changed(running, "MaxSize", 3, 6):
        assert running.cloud.desired("inference")[1] == 3


def test_a_scaling_policy_ends_members_too(running: Running) -> None:
    autoscaling = running.clients("autoscaling")
    running.want(2)
    for zone in (A, B):
        running.buy(zone)
    policy = {"AutoScalingGroupName": running.name(), "PolicyName": "less"}
    autoscaling.put_scaling_policy(**policy, AdjustmentType="ChangeInCapacity", ScalingAdjustment=-1)
    try:
        autoscaling.execute_policy(**policy)
        assert len(running.members()) == 1
    finally:
        autoscaling.delete_policy(**policy)


def test_protected_members_stay_and_only_a_named_one_ends(running: Running) -> None:
    with protecting(running):
        running.want(2)
        first, second = (running.buy(zone) for zone in (A, B))
        assert all(member["ProtectedFromScaleIn"] for member in running.members().values())
        running.want(0)
        assert (running.cloud.desired("inference")[1], set(running.members())) == (0, {first, second})
        activity = running.newest()
        assert (activity["StatusCode"], activity["Description"].partition(" because ")[2]) == (
            "Cancelled",
            "all remaining instances are protected from scale in.",
        )
        running.want(2)
        running.terminate(first)
        assert (running.cloud.desired("inference")[1], set(running.members())) == (1, {second})


def test_out_of_the_warm_pool_members_inherit_the_protection(running: Running) -> None:
    running.cloud.fill_warm_pools()
    with protecting(running):
        (waiting,) = running.cloud.warm("inference")
        running.cloud.start_warm("inference", waiting)
        assert running.members()[waiting]["ProtectedFromScaleIn"]


def test_a_member_that_is_not_yet_in_service_is_not_protected(running: Running) -> None:
    with protecting(running), hooked(running, **LAUNCHING):
        running.want(1)
        running.buy(A)
        running.want(0)
        assert running.members() == {}


def test_a_termination_waits_for_its_hook_and_no_longer_counts(running: Running) -> None:
    with hooked(running) as hook:
        running.want(2)
        remaining, gone = (running.buy(A) for _ in range(2))
        autoscaling = running.clients("autoscaling")
        running.terminate(gone)
        assert running.members()[gone]["LifecycleState"] == "Terminating:Wait"
        assert (running.instance(gone)["State"]["Name"], running.newest()["StatusCode"]) == (
            "running",
            "MidLifecycleAction",
        )
        running.want(1)  # waiting instances do not count: no other one terminates
        assert running.members()[remaining]["LifecycleState"] == "InService"
        assert bodies(running)[-1]["detail-type"] == "EC2 Instance-terminate Lifecycle Action"
        autoscaling.complete_lifecycle_action(**hook, InstanceId=gone, LifecycleActionResult="ABANDON")
        assert (set(running.members()), running.instance(gone)["State"]["Name"]) == (
            {remaining},
            "terminated",
        )
        assert running.newest()["StatusCode"] == "Successful"
        with pytest.raises(ClientError, match="No active Lifecycle Action found"):
            autoscaling.complete_lifecycle_action(**hook, InstanceId=gone, LifecycleActionResult="CONTINUE")


def test_without_completion_it_waits_for_the_heartbeat_timeout_from_the_last_heartbeat(
    running: Running,
) -> None:
    with hooked(running) as hook:
        running.want(1)
        gone = running.buy(A)
        running.want(0)
        running.cloud.set_time(START + 240)
        running.clients("autoscaling").record_lifecycle_action_heartbeat(**hook, InstanceId=gone)
        running.cloud.set_time(START + 540)
        assert running.members()[gone]["LifecycleState"] == "Terminating:Wait"
        running.cloud.set_time(START + 541)
        assert running.members() == {}


def test_an_abandoned_launch_is_cancelled_with_its_reason(running: Running) -> None:
    with hooked(running, **LAUNCHING):
        running.want(1)
        late = running.buy(A)
        running.cloud.set_time(START + 301)
        assert (running.members(), running.instance(late)["State"]["Name"]) == ({}, "terminated")
        asked = {"AutoScalingGroupName": running.name()}
        found = running.clients("autoscaling").describe_scaling_activities(**asked)["Activities"]
        [timed_out] = [activity for activity in found if activity["StatusCode"] == "Cancelled"]
        assert timed_out["StatusMessage"].endswith("Heartbeat Timeout")


@pytest.mark.parametrize(("rebalances", "state"), [(True, "Terminating:Wait"), (False, "InService")])
def test_at_the_notice_a_group_that_rebalances_calls_the_hook(
    running: Running, rebalances: bool, state: str
) -> None:
    group = running.cloud._instances.group(running.name(GroupRole.PRIMARY))
    before, group.capacity_rebalance = group.capacity_rebalance, rebalances
    try:
        interrupted = running.launch()
        running.cloud.notice(interrupted, START + 120)
        assert running.members(GroupRole.PRIMARY)[interrupted]["LifecycleState"] == state
        assert running.cloud.alive("inference") == {interrupted}
        running.cloud.set_time(START + 120)
        running.cloud.kill([interrupted])  # the agent has completed the hook just before
        assert running.members(GroupRole.PRIMARY) == {}
        assert running.instance(interrupted)["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    finally:
        group.capacity_rebalance = before


def test_a_spot_instance_that_is_gone_unannounced_stays_listed_until_its_hook_times_out(
    running: Running,
) -> None:
    lost = running.launch()
    running.cloud.kill([lost])
    member = running.members(GroupRole.PRIMARY)[lost]
    assert (member["LifecycleState"], member["HealthStatus"]) == ("Terminating:Wait", "Unhealthy")
    assert running.cloud.alive("inference") == set()
    running.cloud.set_time(START + 121)  # the sample's hook: 120 s
    assert running.members(GroupRole.PRIMARY) == {}


def test_an_instance_terminated_by_a_client_waits_for_its_hook(running: Running) -> None:
    ended = running.launch()
    running.clients("ec2").terminate_instances(InstanceIds=[ended])
    assert running.members(GroupRole.PRIMARY)[ended]["LifecycleState"] == "Terminating:Wait"
    assert running.instance(ended)["State"]["Name"] == "terminated"
