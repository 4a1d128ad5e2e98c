"""Auto Scaling groups in the local cloud behave like AWS's; only the market launches and interrupts."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from lambdas.core.model import GroupRole, PurchaseOption
from market.replay.groups import ON_DEMAND_REFUSAL, SPOT_REFUSAL
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.cloud.instances import TERMINATED_VISIBLE_SECONDS
from tests.live.world import LAUNCHING, START, Running, bodies, hooked


def test_groups_are_read_from_the_deployment(running: Running) -> None:
    (view,) = running.cloud.groups()
    assert (view.name, view.zones, view.instance_types) == (
        "inference",
        ("us-west-2a", "us-west-2b"),
        ("g5.xlarge", "g6.xlarge"),
    )
    assert (view.config.slots, view.config.drain_seconds) == ({"g5.xlarge": 1, "g6.xlarge": 2}, 30.0)


def test_an_unknown_group_is_an_error_that_names_the_others(running: Running) -> None:
    with pytest.raises(LocalCloudError, match="group 'moon' is not deployed; groups: inference"):
        running.cloud.group("moon")


def test_desired_capacity_is_recorded_and_nothing_is_launched(running: Running) -> None:
    view = running.cloud.group("inference")
    running.want(5, GroupRole.PRIMARY)
    running.clients("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=view.fallback, DesiredCapacity=3
    )
    assert running.cloud.desired("inference") == (5, 3)
    assert running.cloud.alive("inference") == set()
    assert running.primary["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]


@pytest.mark.parametrize(("capacity", "problem"), [(7, "above max value 6"), (-1, "below min value 0")])
def test_capacity_out_of_bounds_is_rejected(running: Running, capacity: int, problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        running.want(capacity, GroupRole.PRIMARY)


def test_a_launched_instance_looks_as_on_aws(running: Running) -> None:
    spot = running.launch("g6.xlarge", "us-west-2b")
    owned = running.buy()
    seen = running.instance(spot)
    assert (seen["InstanceType"], seen["Placement"]["AvailabilityZone"]) == ("g6.xlarge", "us-west-2b")
    assert seen["InstanceLifecycle"] == "spot"
    assert seen["LaunchTime"].timestamp() == START
    assert seen["MetadataOptions"]["HttpTokens"] == "required"
    assert "instance-profile/node-" in seen["IamInstanceProfile"]["Arn"]
    tags = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    assert tags["sample:group"] == "inference"
    assert tags["sample:side"] == "primary"
    assert tags["aws:autoscaling:groupName"] == running.cloud.group("inference").primary
    assert "InstanceLifecycle" not in running.instance(owned)
    assert [(item["InstanceId"], item["LifecycleState"]) for item in running.primary["Instances"]] == [
        (spot, "InService")
    ]
    assert running.cloud.alive("inference", GroupRole.FALLBACK) == {owned}
    assert running.cloud.desired("inference") == (2, 0)


def test_terminate_with_decrement_lowers_desired_and_refills_nothing(running: Running) -> None:
    remaining, gone = (running.launch() for _ in range(2))
    reply = running.terminate(gone)
    assert reply["Activity"]["StatusCode"] == "InProgress"
    assert running.instance(gone)["State"]["Name"] == "running"  # it waits for its hook
    assert running.cloud.alive("inference") == {remaining}
    running.cloud.set_time(START + 30)  # drainSeconds
    running.cloud.let_go("inference")
    assert running.cloud.desired("inference") == (1, 0)
    assert running.instance(gone)["State"]["Name"] == "terminated"


def test_terminate_does_not_go_below_the_minimum(running: Running) -> None:
    running.want(0, GroupRole.PRIMARY)
    instance = running.launch()
    with pytest.raises(ClientError, match="desiredSize equals minSize"):
        running.terminate(instance)
    with pytest.raises(ClientError, match="No managed instance found"):
        running.terminate("i-00000000000000000")


def test_the_market_takes_without_lowering_desired(running: Running) -> None:
    instance = running.launch()
    running.cloud.kill([instance])
    assert running.cloud.alive("inference") == set()
    assert running.cloud.desired("inference") == (2, 0)
    assert running.instance(instance)["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_a_spot_request_follows_the_state_of_its_instance(running: Running) -> None:
    ec2 = running.clients("ec2")
    instance = running.launch()

    def status() -> tuple[str, str, float]:
        (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        assert request["InstanceId"] == instance
        return request["State"], request["Status"]["Code"], request["Status"]["UpdateTime"].timestamp()

    assert status() == ("active", "fulfilled", START)
    running.cloud.set_time(START + 60)
    running.cloud.notice(instance, START + 180)
    # As AWS does for an instance that is terminated on interruption: it still runs.
    assert status() == ("closed", "instance-terminated-no-capacity", START + 60)
    assert running.instance(instance)["State"]["Name"] == "running"
    interrupted = ec2.describe_spot_instance_requests(
        Filters=[{"Name": "status-code", "Values": ["instance-terminated-no-capacity"]}]
    )
    assert len(interrupted["SpotInstanceRequests"]) == 1
    running.cloud.set_time(START + 180)
    running.cloud.kill([instance])
    assert status() == ("closed", "instance-terminated-no-capacity", START + 60)


def test_refusals_are_activities_with_aws_words_newest_first(running: Running) -> None:
    view = running.cloud.group("inference")
    running.cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
    running.cloud.set_time(START + 60)
    running.launch()
    running.cloud.refuse("inference", GroupRole.FALLBACK, ON_DEMAND_REFUSAL)
    autoscaling = running.clients("autoscaling")
    asked = {"AutoScalingGroupName": view.primary}
    found = autoscaling.describe_scaling_activities(**asked)["Activities"]
    said = [(item["StatusCode"], item.get("StatusMessage")) for item in found]
    assert said == [("Successful", None), ("Failed", SPOT_REFUSAL)]
    first = autoscaling.describe_scaling_activities(**asked, MaxRecords=1)
    rest = autoscaling.describe_scaling_activities(**asked, NextToken=first["NextToken"])
    assert [*first["Activities"], *rest["Activities"]] == found


def test_warm_pool_fills_stays_stopped_and_starts_into_the_group(running: Running) -> None:
    view = running.cloud.group("inference")
    running.cloud.fill_warm_pools()
    running.cloud.fill_warm_pools()  # the second time finds it full
    (waiting,) = running.cloud.warm("inference")
    assert running.instance(waiting)["State"]["Name"] == "stopped"
    assert running.cloud.alive("inference") == set()
    pool = running.clients("autoscaling").describe_warm_pool(AutoScalingGroupName=view.fallback)
    assert [(i["InstanceId"], i["LifecycleState"]) for i in pool["Instances"]] == [
        (waiting, "Warmed:Stopped")
    ]
    running.cloud.set_time(START + 60)
    assert running.cloud.start_warm("inference", waiting) == waiting
    assert running.cloud.alive("inference", GroupRole.FALLBACK) == {waiting}
    assert running.instance(waiting)["State"]["Name"] == "running"
    assert running.cloud.warm("inference") == ()


def test_a_warm_instance_that_is_not_started_is_ended_and_its_place_filled_again(running: Running) -> None:
    running.cloud.fill_warm_pools()
    (waiting,) = running.cloud.warm("inference")
    running.cloud.lose_warm("inference", waiting)
    assert running.instance(waiting)["State"]["Name"] == "terminated"
    assert running.cloud.warm("inference") == ()
    assert running.cloud.alive("inference") == set()
    running.cloud.fill_warm_pools()
    assert len(running.cloud.warm("inference")) == 1


def test_ended_instances_disappear_after_a_while(running: Running) -> None:
    ec2 = running.clients("ec2")
    volumes = ec2.describe_volumes()["Volumes"]
    instance = running.launch("g6.xlarge")
    assert len(running.instance(instance)["BlockDeviceMappings"]) == 1
    assert len(ec2.describe_volumes()["Volumes"]) == len(volumes) + 1
    running.cloud.heartbeat([instance])
    running.cloud.kill([instance])
    running.cloud.set_time(START + TERMINATED_VISIBLE_SECONDS - 1)
    assert running.instance(instance)["State"]["Name"] == "terminated"
    running.cloud.set_time(START + TERMINATED_VISIBLE_SECONDS)
    assert ec2.describe_instances()["Reservations"] == []
    assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []
    assert running.clients("dynamodb").scan(TableName=running.cloud.registry.table)["Items"] == []
    assert ec2.describe_volumes()["Volumes"] == volumes


def test_heartbeats_follow_the_contract(running: Running) -> None:
    instance = running.launch("g6.xlarge")
    running.cloud.heartbeat([instance])
    running.cloud.notice(instance, START + 120)
    running.cloud.set_time(START + 60)
    running.cloud.heartbeat([instance])
    items = running.clients("dynamodb").scan(TableName=running.cloud.registry.table)["Items"]
    assert sorted(item["worker"]["S"] for item in items) == [f"{instance}/0", f"{instance}/1"]
    for item in items:
        assert item["since"]["N"] == str(int(START))
        assert item["heartbeat"]["N"] == str(int(START) + 60)
        assert item["deadline"]["N"] == str(int(START) + 120)
        assert item["state"]["S"] == "ready"
    running.cloud.set_time(START + 90)  # drainSeconds is 30
    running.cloud.heartbeat([instance])
    items = running.clients("dynamodb").scan(TableName=running.cloud.registry.table)["Items"]
    assert {item["state"]["S"] for item in items} == {"draining"}


@pytest.mark.parametrize(
    ("kind", "zone", "problem"),
    [
        ("p4d.24xlarge", "us-west-2a", "type 'p4d.24xlarge'; use g5.xlarge, g6.xlarge"),
        ("g5.xlarge", "us-west-2d", "no subnet in 'us-west-2d'; use us-west-2a, us-west-2b"),
    ],
)
def test_a_launch_outside_the_group_is_rejected(running: Running, kind: str, zone: str, problem: str) -> None:
    with pytest.raises(LocalCloudError, match=problem):
        running.cloud.launch("inference", GroupRole.PRIMARY, kind, zone, PurchaseOption.SPOT)


def test_on_demand_gets_no_notice(running: Running) -> None:
    instance = running.buy()
    with pytest.raises(LocalCloudError, match="is On-Demand"):
        running.cloud.notice(instance, START + 120)


def test_a_launch_waits_for_its_hook_until_the_first_heartbeat(running: Running) -> None:
    def state() -> tuple[str, str]:
        [member] = running.members().values()
        return member["LifecycleState"], running.newest()["StatusCode"]

    with hooked(running, **LAUNCHING):
        instance = running.buy()
        assert state() == ("Pending:Wait", "MidLifecycleAction")
        assert bodies(running)[-1]["detail-type"] == "EC2 Instance-launch Lifecycle Action"
        running.cloud.heartbeat([instance])
        assert state() == ("InService", "Successful")
        (event,) = bodies(running)
        assert event["detail-type"] == "EC2 Instance Launch Successful"
        running.cloud.heartbeat([instance])
        assert bodies(running) == []


def test_an_instance_can_complete_its_launch_hook_itself_and_once(running: Running) -> None:
    autoscaling = running.clients("autoscaling")
    with hooked(running, **LAUNCHING) as hook:
        instance = running.buy()
        bodies(running)
        completed = {**hook, "InstanceId": instance, "LifecycleActionResult": "CONTINUE"}
        autoscaling.complete_lifecycle_action(**completed)
        assert [event["detail-type"] for event in bodies(running)] == ["EC2 Instance Launch Successful"]
        for again in (completed, {**completed, "LifecycleHookName": "another"}):
            with pytest.raises(ClientError, match="No active Lifecycle Action found with instance ID"):
                autoscaling.complete_lifecycle_action(**again)


def test_a_started_warm_instance_has_a_new_launch_time(running: Running) -> None:
    running.cloud.fill_warm_pools()
    (waiting,) = running.cloud.warm("inference")
    running.cloud.set_time(START + 600)
    running.cloud.start_warm("inference", waiting)
    assert running.instance(waiting)["LaunchTime"].timestamp() == START + 600


def test_after_a_day_of_failed_launches_launching_is_suspended_until_resumed(running: Running) -> None:
    cloud, name = running.cloud, running.cloud.group("inference").primary
    cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
    cloud.set_time(START + 3600)
    cloud.launch("inference", GroupRole.PRIMARY, "g5.xlarge", "us-west-2a", PurchaseOption.SPOT)
    cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
    cloud.set_time(START + 3600 + 86_399)
    assert cloud.launchable("inference")[GroupRole.PRIMARY] == 2
    cloud.set_time(START + 3600 + 86_400)
    processes = {process["ProcessName"] for process in running.primary["SuspendedProcesses"]}
    assert processes == {"AZRebalance", "Launch"}
    assert cloud.launchable("inference")[GroupRole.PRIMARY] == 1
    running.clients("autoscaling").resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    assert cloud.launchable("inference")[GroupRole.PRIMARY] == 2
