"""Stories of people who run such groups, on an AWS that refuses what AWS refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from contracts.registry import item as registry_item
from lambdas.aws.capacity.controller import GroupOutcome
from lambdas.core.model import Alarm
from tests.fakes.aws import FakeAws, config, worker
from tests.lambdas.single_group import NOW, activity, controller

FLEET = "sfr-73fbd2ce-aa30-494c-8788-1cee4EXAMPLE"
EXPECTED_COST = {"name": "expected-cost", "parameters": {}}


class BoundedAws(FakeAws):
    """``FakeAws`` whose groups have bounds, and refuse as AWS does what is beyond them."""

    def set_bounds(self, name: str, minimum: int, maximum: int) -> None:
        """Update a group: its desired capacity moves with its bounds."""
        group = self.groups[name]
        group |= {"MinSize": minimum, "MaxSize": maximum}
        group["DesiredCapacity"] = min(max(group["DesiredCapacity"], minimum), maximum)

    def _set_desired_capacity(self, AutoScalingGroupName: str, DesiredCapacity: int, **more: Any) -> None:  # noqa: N803
        least, most = (self.groups[AutoScalingGroupName].get(key, 0) for key in ("MinSize", "MaxSize"))
        if not least <= DesiredCapacity <= most:
            refuse(f"New SetDesiredCapacity value {DesiredCapacity} is not from {least} to {most}")
        super()._set_desired_capacity(AutoScalingGroupName, DesiredCapacity, **more)

    def _terminate_instance_in_auto_scaling_group(self, InstanceId: str, **more: Any) -> None:  # noqa: N803
        group = self.groups[self.instances[InstanceId]["_group"]]
        if more["ShouldDecrementDesiredCapacity"] and group["DesiredCapacity"] <= group["MinSize"]:
            refuse("Currently, desiredSize equals minSize.")
        super()._terminate_instance_in_auto_scaling_group(InstanceId, **more)


def refuse(message: str) -> None:
    raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "AutoScaling")


def stack(target: int, running: int, maximum: int = 8, **changes: Any) -> BoundedAws:
    """Return a group with ready Spot Instances that AWS protects from scale-in."""
    aws = BoundedAws(now=NOW)
    aws.set(config=config(max=maximum, **changes), target=str(target))
    aws.add_group("primary", running)
    aws.add_group("fallback")
    for name in ("primary", "fallback"):
        aws.set_bounds(name, 0, maximum)
    for n in range(running):
        aws.add_instance("primary", f"i-{n:02}", spot=True, launched=NOW - 7200, heartbeat=None)
    return aws


def play(
    aws: FakeAws, minutes: int, each: Callable[[int, float], object] = lambda *_: None, reports: bool = True
) -> list[GroupOutcome]:
    """Run a pass a minute, in which all instances report; return the outcomes."""
    outcomes = []
    for minute in range(minutes):
        now = NOW + 60 * minute
        if reports:
            aws.slots = [registry_item.dump(worker(i, NOW - 7000, now - 5)) for i in aws.instances]
        each(minute, now)
        outcomes += controller(aws, now).run()
    return outcomes


def alarms(outcomes: list[GroupOutcome]) -> list[str]:
    found = [a for o in outcomes if o.decision is not None for a in o.decision.actions]
    return [a.kind for a in found if isinstance(a, Alarm)]


bounds = st.lists(
    st.tuples(st.integers(1, 14), st.integers(0, 14), st.integers(0, 3), st.sampled_from((0, 50, 100))),
    min_size=1,
    max_size=4,
)


@given(running=st.integers(0, 14), moves=bounds)
def test_bounds_move_under_a_running_group(running: int, moves: list[tuple[int, int, int, int]]) -> None:
    """The maximum, the target, the base and the share change; AWS refuses no request, and surplus ends."""
    aws = stack(min(running, 14), running, maximum=14)
    for maximum, wanted, base, share in moves:
        base, target = min(base, maximum), str(wanted)
        aws.set(config=config(max=maximum, base=base, spotPercentage=share), target=target)
        for name in ("primary", "fallback"):
            aws.set_bounds(name, 0, maximum)
        outcomes = play(aws, 8)
        assert [o.error for o in outcomes if o.errors] == []
        assert len(aws.instances) <= max(min(wanted, maximum), base)
        assert sum(group["DesiredCapacity"] for group in aws.groups.values()) <= maximum


@pytest.mark.parametrize("protected", [True, False])
@pytest.mark.parametrize("minimum", [0, 2])
def test_a_lower_maximum_ends_what_is_above_it(protected: bool, minimum: int) -> None:
    aws = stack(4, 12, maximum=12)
    aws.set(config=config(max=6))
    for member in aws.groups["primary"]["Instances"]:
        member["ProtectedFromScaleIn"] = protected
    aws.set_bounds("primary", minimum, 6)
    aws.set_bounds("fallback", 0, 6)
    outcomes = play(aws, 10)
    assert [o.error for o in outcomes if o.errors] == []
    assert len(aws.instances) == 4
    assert aws.groups["primary"]["DesiredCapacity"] == 4


@pytest.mark.parametrize(
    "state", ["cancelled", "cancelled_running", "cancelled_terminating", "gone", "unknown id"]
)
@pytest.mark.parametrize("running", [0, 3])
def test_without_its_primary_group_on_demand_covers(state: str, running: int) -> None:
    aws = FakeAws()
    aws.set(config=config(kind="spot-fleet", primary=FLEET, policy=EXPECTED_COST), target="4")
    aws.add_fleet(FLEET, target=4)
    aws.add_group("fallback")
    for n in range(running):
        aws.add_instance(FLEET, f"i-{n}", spot=True, launched=NOW - 7200, heartbeat=None)
    aws.fleets[FLEET]["SpotFleetRequestState"] = state
    if state == "gone":
        aws.fleets.clear()
    if state == "unknown id":
        error = {"Error": {"Code": "InvalidSpotFleetRequestId.NotFound", "Message": "no such fleet"}}
        aws.failures["describe_spot_fleet_requests"] = ClientError(error, "DescribeSpotFleetRequests")
    outcomes = play(aws, 30)
    assert aws.groups["fallback"]["DesiredCapacity"] == 4 - running  # those that EC2 runs still serve
    assert alarms(outcomes) == ["primary-missing"]
    assert all(o.error is None for o in outcomes)


def test_an_instance_of_a_fleet_that_cannot_be_read_keeps_its_weight() -> None:
    aws = FakeAws()
    weights = {"slots": {"g5.xlarge": 4}, "weights": {"g5.xlarge": 4}}
    aws.set(config=config(kind="spot-fleet", primary=FLEET, max=16, **weights), target="8")
    aws.add_fleet(FLEET, target=8)
    aws.add_group("fallback")
    for n in range(2):
        aws.add_instance(FLEET, f"i-{n}", spot=True, launched=NOW - 7200, heartbeat=None)
    aws.fleets[FLEET]["SpotFleetRequestState"] = "cancelled_running"

    def report(minute: int, now: float) -> None:
        times = NOW - 7000, now - 5
        aws.slots = [registry_item.dump(worker(i, *times, slot=n)) for i in aws.instances for n in range(4)]

    assert alarms(play(aws, 10, report)) == ["primary-missing"]
    assert aws.groups["fallback"]["DesiredCapacity"] == 0


def test_a_refused_termination_of_the_only_instance_is_tried_again() -> None:
    aws = stack(1, 1, maximum=2)
    hung = [registry_item.dump(worker(i, NOW - 7000, NOW - 5)) for i in aws.instances]

    def hang(minute: int, now: float) -> None:
        aws.slots = hung

    aws.throttled["terminate_instance_in_auto_scaling_group"] = 1
    outcomes = play(aws, 40, hang)
    assert [len(o.errors) for o in outcomes if o.errors] == [1]
    assert aws.instances == {}


@pytest.mark.parametrize("running", [1, 4])
def test_a_deleted_primary_group_is_covered_and_a_deleted_fallback_hides_nothing(running: int) -> None:
    aws = stack(4, 0)
    del aws.groups["primary"]
    assert alarms(play(aws, 30)) == ["primary-missing"]
    assert aws.groups["fallback"]["DesiredCapacity"] == 4
    aws = stack(4, running)
    del aws.groups["fallback"]
    aws.groups["primary"]["SuspendedProcesses"] = [{"ProcessName": "Launch"}]
    assert sorted(alarms(play(aws, 5))) == ["fallback-missing", "primary-suspended"]
    assert aws.groups["primary"]["DesiredCapacity"] == 4


@pytest.mark.parametrize(
    ("message", "on_demand"),
    [
        ("Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot count exceeded.", 4),
        ("You've reached your quota for maximum Spot Fleet Requests for this account.", 4),
        ("There are not enough free addresses in subnet 'subnet-0' to satisfy the requested number.", 4),
        ("You have requested more vCPU capacity than your current vCPU limit of 8 allows.", 0),
        ("VolumeLimitExceeded", 0),
        ("In order to use this AWS Marketplace product you need to accept terms and subscribe.", 0),
    ],
)
def test_what_limits_spot_alone_is_covered_and_what_both_share_withholds(
    message: str, on_demand: int
) -> None:
    aws = stack(8, 4, maximum=16, policy={"name": "expected-cost", "parameters": {"shortageCost": 100}})
    aws.groups["primary"]["DesiredCapacity"] = 8

    def fail(minute: int, _: float) -> None:
        aws.activities["primary"] = [activity("Failed", message, -minute + minute % 10)]

    raised = alarms(play(aws, 120, fail))
    assert aws.groups["fallback"]["DesiredCapacity"] == on_demand
    assert len(raised) == ("addresses" not in message)


@pytest.mark.parametrize("size", [{}, {"WarmPoolSize": 1}])
def test_a_warm_pool_that_never_fills_is_an_alarm(size: dict[str, int]) -> None:
    aws = stack(2, 2)
    pool = {"WarmPoolConfiguration": {"PoolState": "Stopped", "MaxGroupPreparedCapacity": 2}, **size}
    aws.groups["fallback"] |= pool
    text = "Lifecycle Action with token 0 was abandoned: Heartbeat Timeout"

    def fail(minute: int, _: float) -> None:
        failed = activity("Failed", text, -minute)
        failed["Description"] = "Launching a new EC2 instance into warm pool: i-0123456789abcdef0"
        aws.activities["fallback"] = [failed]

    assert alarms(play(aws, 58, fail)) == []
    outcomes = play(aws, 180, fail)
    assert alarms(outcomes) == ["warm-pool"]
    [alarm] = [a for o in outcomes if o.decision for a in o.decision.actions if isinstance(a, Alarm)]
    assert text in alarm.reason
    del aws.groups["fallback"]["WarmPoolConfiguration"]
    assert [o.alarm_causes for o in play(aws, 240, fail)] == [0] * 240  # without the pool nothing lacks


JOB = {"breakBeforeMake": True, "run": "r1", "policy": EXPECTED_COST}


@pytest.mark.parametrize("others", ["none", "report", "silent"])
@pytest.mark.parametrize(
    "changes", [JOB, {**JOB, "fallback": None}, {"fallback": None, "policy": EXPECTED_COST}], ids=repr
)
def test_the_only_instance_is_replaced_if_the_rest_of_the_stack_reports(
    changes: dict[str, Any], others: str
) -> None:
    aws = stack(1, 1, maximum=2, **changes)
    aws.set(finished="none")
    hung = [registry_item.dump(worker("i-00", NOW - 7000, NOW - 5))]
    if others != "none":
        aws.add_group("other-primary", 1)
        aws.add_group("other-fallback")
        aws.add(1, "other")

    def report(_: int, now: float) -> None:
        aws.slots, aws.now = hung, now
        if others == "report":
            aws.send_heartbeats()

    outcomes = play(aws, 90, report, reports=False)
    assert ("i-00" not in aws.instances) is (others != "silent")
    assert "silent" in alarms([o for o in outcomes if o.group == "inference"])


READS = (
    *("describe_auto_scaling_groups", "describe_instances", "describe_spot_instance_requests"),
    *("describe_scaling_activities", "batch_get_item"),
)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("minutes", [3, 90])
def test_no_input_that_is_absent_lowers_capacity_or_hides_an_alarm(read: str, minutes: int) -> None:
    """Absent for three passes, or for longer than an instance may be silent."""
    aws = stack(4, 3)
    aws.groups["primary"]["DesiredCapacity"] = 4
    aws.activities["primary"] = [activity("Failed", "VcpuLimitExceeded")]
    assert alarms(play(aws, 2)) == ["primary-limit"]
    before = {name: group["DesiredCapacity"] for name, group in aws.groups.items()}
    error = {"Error": {"Code": "AccessDeniedException", "Message": "not now"}}
    aws.failures[read] = ClientError(error, read)
    outcomes = play(aws, minutes)
    assert len(aws.instances) == 3
    assert all(group["DesiredCapacity"] >= before[name] for name, group in aws.groups.items())
    assert alarms(outcomes) == []
    held = [o.decision.memory.active_alarms for o in outcomes if o.decision is not None]
    assert all("primary:limit" in causes for causes in held)
    assert all(o.read_errors or o.errors for o in outcomes)
    del aws.failures[read]
    assert alarms(play(aws, 2)) == []


@pytest.mark.parametrize(
    "leaf",
    [{"replacements": "{"}, {"rolling": "?"}, {"replacements": '{"i-00": {"at": 1, "reason": "xid"}}'}],
)
def test_malformed_and_old_requests_change_nothing(leaf: dict[str, str]) -> None:
    aws = stack(3, 3)
    aws.set(**leaf)
    outcomes = play(aws, 5)
    assert len(aws.instances) == 3
    assert all(o.decision is not None for o in outcomes)
