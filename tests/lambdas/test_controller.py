"""One pass of the controller on a fake AWS that pages and counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import CapacityChange, NotTerminatedError
from lambdas.aws.capacity.controller import build
from lambdas.aws.capacity.observe import Observer
from lambdas.aws.capacity.spot_fleet import SpotFleetService
from lambdas.aws.capacity.wake_up_messages import MAX_DELAY_SECONDS, WakeUpScheduler
from lambdas.aws.items import KEPT_SECONDS
from lambdas.aws.memory import ConflictError, MemoryStore
from lambdas.aws.passes import MAX_ATTEMPTS
from lambdas.aws.settings import parse
from lambdas.core.capacity.memory import Memory
from lambdas.core.events import InterruptionNotice
from lambdas.core.launch_failures import LAUNCH_FAILURE_SECONDS
from lambdas.core.model import (
    Alarm,
    GroupRole,
    Instance,
    Observation,
    Pool,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
)
from tests.fakes.aws import FakeAws, config
from tests.lambdas.single_group import CONTROLLER_CONFIG, NOW, actions, activity, controller, declared, only

LAUNCHING = "Launching a new EC2 instance"


def lacks_one(aws: FakeAws, *activities: dict[str, Any]) -> None:
    """Let the primary group lack one of five instances, with these activities."""
    aws.groups["primary"]["DesiredCapacity"] = 5
    aws.set(target="5")
    aws.activities["primary"] = [*activities]


def test_a_full_group_causes_no_action_and_no_write(aws: FakeAws) -> None:
    controller(aws).run()
    aws.calls.clear()
    assert actions(only(controller(aws).run())) == ()
    assert aws.calls == {
        "get_parameters_by_path": 1,
        "get_item": 1,  # when each group had its turn
        "describe_auto_scaling_groups": 1,
        "describe_instances": 1,
        "batch_get_item": 2,  # the memories, the workers
        "describe_spot_instance_requests": 1,
        "put_item": 1,
    }


def test_a_groups_memory_stays_while_the_group_does_and_expires_afterwards(aws: FakeAws) -> None:
    writes = []
    for day in range(400):
        now = NOW + 86_400 * day
        aws.calls.clear()
        only(controller(aws, now).run())
        writes.append(aws.calls["put_item"] - 1)  # the order of the groups is written each time
        assert now + KEPT_SECONDS / 2 < float(aws.memory["inference"]["expires"]["N"]) <= now + KEPT_SECONDS
    assert sum(writes[10:]) <= 400 / 10 + 1


def test_a_notice_starts_on_demand_until_the_spot_successor_is_ready(aws: FakeAws) -> None:
    controller(aws).run([InterruptionNotice("i-0", NOW + 120)])
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    aws.add_instance("fallback", "i-od", spot=False, launched=NOW, heartbeat=NOW + 55)
    aws.add_instance("primary", "i-4", spot=True, launched=NOW + 5, heartbeat=NOW + 185)
    for slot in aws.slots:
        slot["heartbeat"]["N"] = str(NOW + 185)
    outcome = only(controller(aws, NOW + 186).run())
    [ended] = actions(outcome)
    assert ended == TerminateInstances(GroupRole.FALLBACK, ("i-od",), outcome.decision.reason, 1)
    fallback = aws.groups["fallback"]
    assert (fallback["DesiredCapacity"], fallback["Instances"]) == (0, [])


@pytest.mark.parametrize(("job", "gone"), [(True, ["i-od"]), (False, [])])
def test_a_job_moves_to_its_standby_and_a_service_does_not(job: bool, gone: list[str]) -> None:
    aws = declared(target=1, primary=1, max=2, breakBeforeMake=job)
    aws.groups["fallback"]["DesiredCapacity"] = 1
    waits, works = {"since": NOW - 20, "state": "waiting"}, {"since": NOW - 900}
    aws.add_instance("primary", "i-spot", spot=True, launched=NOW - 200, heartbeat=NOW - 5, **waits)
    aws.add_instance("fallback", "i-od", spot=False, launched=NOW - 999, heartbeat=NOW - 5, **works)
    decided = actions(only(controller(aws).run()))
    assert [i for a in decided if isinstance(a, TerminateInstances) for i in a.instance_ids] == gone


def test_only_the_newest_launch_decides_about_launch_failures(aws: FakeAws) -> None:
    lacks_one(aws, activity("InProgress"), activity("Failed", "VcpuLimitExceeded", 1))
    assert actions(only(controller(aws).run())) == (Alarm("primary-limit", "VcpuLimitExceeded"),)
    aws.activities["primary"].insert(0, activity("Successful"))
    outcome = only(controller(aws).run())
    assert actions(outcome) == (SetDesired(GroupRole.FALLBACK, 1, outcome.decision.reason),)


@pytest.mark.parametrize("status", ["Failed", "Cancelled"])
def test_a_failed_launch_counts_until_another_succeeds(aws: FakeAws, status: str) -> None:
    limit = activity(status, "VcpuLimitExceeded", LAUNCH_FAILURE_SECONDS / 60 - 1)
    lacks_one(aws, limit, activity("Successful", minute=60))
    assert actions(only(controller(aws).run())) == (Alarm("primary-limit", "VcpuLimitExceeded"),)
    for age in (LAUNCH_FAILURE_SECONDS, 2 * LAUNCH_FAILURE_SECONDS - 1):
        limit["StartTime"] = datetime.fromtimestamp(NOW - age, UTC)
        only(controller(aws).run())
        assert aws.groups["fallback"]["DesiredCapacity"] == 0
    aws.activities["primary"].insert(0, activity("Successful"))
    only(controller(aws).run())
    assert aws.groups["fallback"]["DesiredCapacity"] == 1


def test_launches_into_the_warm_pool_are_ignored(aws: FakeAws) -> None:
    refill = {**activity("Failed", "VcpuLimitExceeded"), "Description": f"{LAUNCHING} into warm pool: i-1"}
    started = {**activity("Successful", minute=1), "Description": f"{LAUNCHING} from warm pool: i-2"}
    aws.groups["fallback"]["DesiredCapacity"] = 1
    aws.set(target="5")
    aws.activities["fallback"] = [refill, started]
    assert Alarm not in map(type, actions(only(controller(aws).run())))
    aws.groups["fallback"]["DesiredCapacity"] = 1
    aws.activities["fallback"] = [
        {**refill, "StatusCode": "Successful"},
        activity("Failed", "AuthFailure", 2),
    ]
    assert Alarm("fallback-permission", "AuthFailure") in actions(only(controller(aws).run()))


def test_a_cancelled_launch_without_a_known_reason_blocks_nothing(aws: FakeAws) -> None:
    lacks_one(aws, activity("Cancelled"))
    only(controller(aws).run())
    assert aws.groups["fallback"]["DesiredCapacity"] == 1


def test_of_two_executions_with_the_same_observation_one_acts(aws: FakeAws) -> None:
    store = MemoryStore(aws.client("dynamodb"), "memory")
    store.save("inference", Memory(), None, 0, NOW)
    store.save("inference", Memory(), 5.0, 1, NOW)
    with pytest.raises(ConflictError, match="memory of group 'inference' is newer than version 1"):
        store.save("inference", Memory(), None, 1, NOW)
    assert store.load("inference").wake_at == 5.0


def test_a_conflict_prevents_the_second_execution_from_acting(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = Observer.observe

    def and_meanwhile(self: Observer, *seen_with: Any) -> Any:
        seen = observe(self, *seen_with)
        monkeypatch.setattr(Observer, "observe", observe)
        controller(aws).run([InterruptionNotice("i-0", NOW + 120)])
        aws.calls.clear()
        return seen

    monkeypatch.setattr(Observer, "observe", and_meanwhile)
    outcome = only(controller(aws).run([InterruptionNotice("i-0", NOW + 120)]))
    # It looks again in the same pass, and finds done what it would have done.
    assert (actions(outcome), outcome.attempts) == ((), 2)
    assert aws.calls["set_desired_capacity"] == 0


def test_a_failed_read_is_retried_within_the_pass(aws: FakeAws) -> None:
    aws.throttled["describe_instances"] = MAX_ATTEMPTS  # of them one looks for the group of i-0
    outcome = only(controller(aws).run([InterruptionNotice("i-0", NOW + 120)]))
    assert outcome.attempts == MAX_ATTEMPTS
    assert aws.groups["fallback"]["DesiredCapacity"] == 1


def test_a_failed_primary_change_does_not_block_on_demand(aws: FakeAws) -> None:
    aws.set(target="6")
    aws.throttled["set_desired_capacity"] = 1
    [outcome] = controller(aws).run([InterruptionNotice("i-0", NOW + 120)])
    assert "Rate exceeded" in str(outcome.error)
    assert aws.groups["primary"]["DesiredCapacity"] == 4
    assert aws.groups["fallback"]["DesiredCapacity"] == 3


def test_after_a_failed_decrease_the_other_group_stays_within_the_maximum(aws: FakeAws) -> None:
    aws.set(config=config(max=5))
    aws.instances.clear()
    aws.groups["primary"]["Instances"].clear()
    aws.throttled["set_desired_capacity"] = 1
    controller(aws).run()
    # Four on-demand and one spot are wanted, but the primary still asks for four.
    assert [aws.groups[side]["DesiredCapacity"] for side in ("primary", "fallback")] == [4, 1]
    controller(aws).run()
    assert [aws.groups[side]["DesiredCapacity"] for side in ("primary", "fallback")] == [1, 4]


def test_after_a_failed_change_the_other_group_may_be_raised_to_its_counted_slots(aws: FakeAws) -> None:
    settings = parse("inference", {"config": config(), "target": "4"})
    aws.throttled["set_desired_capacity"] = 1
    pool = Pool("g5.12xlarge", "us-west-2a")
    big = Instance("i-big", pool, PurchaseOption.ON_DEMAND, GroupRole.FALLBACK, NOW, slots=4)
    # One slot was asked for, and an instance of four came: its release takes four off.
    seen = Observation(settings.group, 8, 1, (big,))
    moves = [SetDesired(GroupRole.PRIMARY, 4, "why"), SetDesired(GroupRole.FALLBACK, 4, "why")]
    moves.append(TerminateInstances(GroupRole.FALLBACK, ("i-big",), "why", 4))
    [failure] = controller(aws).updater.apply_actions(moves, settings, seen)
    assert failure.group_role is GroupRole.PRIMARY
    assert aws.groups["fallback"]["DesiredCapacity"] == 4


def test_a_throttled_termination_is_not_remembered(aws: FakeAws) -> None:
    aws.set(target="2")
    aws.throttled["terminate_instance_in_auto_scaling_group"] = 1
    [outcome] = controller(aws).run()
    released = [i for a in actions(outcome) if isinstance(a, TerminateInstances) for i in a.instance_ids]
    assert str(outcome.error).startswith(f"not terminated: {', '.join(released)}: ")
    # At once again, not five minutes later.
    [again] = actions(only(controller(aws, NOW + 20).run()))
    assert again.instance_ids == tuple(released)
    assert len(aws.instances) == 2


def test_what_was_terminated_before_a_timeout_is_remembered(aws: FakeAws) -> None:
    settings, ids = parse("inference", {"config": config(), "target": "4"}), ("i-0", "i-1", "i-2")
    client, late = aws.client("autoscaling"), ReadTimeoutError(endpoint_url="autoscaling")
    client.terminate_instance_in_auto_scaling_group = Mock(side_effect=[None, late])
    aws.failures["terminate_instances"] = late
    change = CapacityChange(3, 3, ids, current_on_demand=0)
    for service, left in ((AutoScalingService(client), ids[1:]), (SpotFleetService(aws.client("ec2")), ids)):
        with pytest.raises(NotTerminatedError) as caught:
            service.apply("group", change, settings.group)
        assert caught.value.instance_ids == left


def test_a_failed_termination_does_not_block_the_others(aws: FakeAws) -> None:
    settings = parse("inference", {"config": config(), "target": "4"})
    refuse = ClientError({"Error": {"Code": "ResourceContention", "Message": "in use"}}, "Terminate")
    client = aws.client("autoscaling")
    terminate = client.terminate_instance_in_auto_scaling_group

    def refusing(InstanceId: str, **kwargs: Any) -> None:  # noqa: N803
        if InstanceId == "i-0":
            raise refuse
        terminate(InstanceId=InstanceId, **kwargs)

    client.terminate_instance_in_auto_scaling_group = refusing
    with pytest.raises(NotTerminatedError, match="not terminated: i-0: ") as caught:
        AutoScalingService(client).apply(
            "primary", CapacityChange(4, 4, ("i-0", "i-1"), freed_slots=2), settings.group
        )
    assert caught.value.instance_ids == ("i-0",)
    assert "i-1" not in aws.instances


def test_dry_run_decides_and_changes_nothing(aws: FakeAws) -> None:
    aws.set(control='{"mode": "dry-run"}')
    outcome = only(controller(aws).run([InterruptionNotice("i-0", NOW + 120)]))
    assert len(actions(outcome)) == 1
    assert not outcome.is_applied
    assert aws.groups["fallback"]["DesiredCapacity"] == 0
    aws.groups["primary"]["DesiredCapacity"] = 5
    aws.activities["primary"] = [activity("Failed", "VcpuLimitExceeded", 1)]
    passes = [actions(only(controller(aws).run())) for _ in range(2)]
    assert [any(isinstance(action, Alarm) for action in taken) for taken in passes] == [True, False]


@pytest.mark.parametrize("mode", ["automatic", "dry-run", "paused"])
def test_an_unreadable_memory_is_reset_with_one_alarm(aws: FakeAws, mode: str) -> None:
    aws.set(control=json.dumps({"mode": mode}))
    aws.memory["inference"] = {"group": {"S": "inference"}, "version": {"N": "7"}, "memory": {"S": "?"}}
    [alarm] = actions(only(controller(aws).run()))
    assert alarm.kind == "memory-unreadable"
    assert "group 'inference' was reset: stored state is not JSON: Expecting value" in alarm.reason
    assert aws.memory["inference"]["version"] == {"N": "8"}
    assert actions(only(controller(aws).run())) == ()


def test_terminating_a_missing_instance_is_no_error(aws: FakeAws) -> None:
    settings = parse("inference", {"config": config(), "target": "4"})
    gone = TerminateInstances(GroupRole.FALLBACK, ("i-gone",), "why", 1)
    seen = Observation(settings.group, 4, 1)
    assert controller(aws).updater.apply_actions([gone], settings, seen) == ()
    assert aws.calls["terminate_instance_in_auto_scaling_group"] == 1


def test_a_run_is_scheduled_for_the_start_of_a_drain_once(aws: FakeAws) -> None:
    aws.set(config=config(drainSeconds=30))
    for _ in range(2):
        controller(aws).run([InterruptionNotice("i-0", NOW + 119.5)])
    assert aws.delayed == [90]


def test_a_wake_up_is_not_late_by_the_time_that_reading_took(aws: FakeAws) -> None:
    aws.set(config=config(drainSeconds=30))
    slow = build(aws.client, CONTROLLER_CONFIG, lambda: NOW + 20 * aws.calls["batch_get_item"])
    slow.run([InterruptionNotice("i-0", NOW + 120)])
    assert aws.delayed == [50]


def test_a_failed_wake_up_does_not_block_capacity_changes(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FakeAws, **_: Any) -> None:
        raise RuntimeError("queue")

    monkeypatch.setattr(FakeAws, "_send_message", refuse)
    aws.set(config=config(drainSeconds=30))
    outcome = controller(aws).run([InterruptionNotice("i-0", NOW + 120)])[0]
    assert str(outcome.error) == "queue"
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    # What was not sent is not remembered as sent: the next pass sends it.
    monkeypatch.undo()
    controller(aws, NOW + 20).run()
    assert aws.delayed == [70]


def test_runs_beyond_the_maximum_delay_are_left_to_the_schedule(aws: FakeAws) -> None:
    clock = WakeUpScheduler(aws.client("sqs"), "queue")
    clock.schedule(MAX_DELAY_SECONDS + 1)
    clock.schedule(MAX_DELAY_SECONDS)
    clock.schedule(-5)
    assert aws.delayed == [900, 0]
