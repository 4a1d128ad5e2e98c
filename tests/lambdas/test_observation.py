"""Observations with delayed lists, terminated members, malformed items, failed reads, and Spot prices."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from contracts.registry import item as registry_item
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS, STALE_SECONDS, Progress
from lambdas.aws.budget import MAX_PAGES, Budget, BudgetError
from lambdas.aws.capacity.observe import SPOT_REQUEST_ATTEMPTS
from lambdas.core.capacity.group_state import UNKNOWN_SPOT_PRICE, GroupState
from lambdas.core.capacity.memory import MARK_RETENTION_SECONDS, MAX_BOOT_SECONDS, PRICE_SECONDS
from lambdas.core.model import Alarm, GroupRole, SetDesired
from tests.fakes.aws import FakeAws, config, partition, worker
from tests.lambdas.single_group import NOW, actions, activity, controller, only


def seen(aws: FakeAws, now: float = NOW) -> GroupState:
    """Return the state that a pass decides on."""
    return only(controller(aws, now).run()).decision.state


@pytest.mark.parametrize(
    "code",
    [
        "instance-terminated-no-capacity",  # at the notice: the instance runs for two minutes more
        "instance-terminated-by-price",
        "instance-terminated-by-experiment",
        "marked-for-termination",
        "marked-for-stop",
    ],
)
def test_a_lost_notice_is_read_from_the_spot_request(aws: FakeAws, code: str) -> None:
    aws.interrupted["i-2"], aws.interruption_code = NOW - 10, code
    outcome = only(controller(aws).run())
    assert outcome.decision.memory.termination_deadlines == {"i-2": NOW + 110}
    assert aws.groups["fallback"]["DesiredCapacity"] == 1


def test_requests_of_instances_that_ended_hours_ago_change_nothing(aws: FakeAws) -> None:
    aws.interrupted = {f"i-old-{n}": NOW - 3600 * n for n in range(5)}
    outcome = only(controller(aws).run())
    assert outcome.decision.memory.termination_deadlines == {}
    assert actions(outcome) == ()


@pytest.mark.parametrize(("age", "ready"), [(STALE_SECONDS - 1, 4), (STALE_SECONDS, 0)])
def test_an_instance_without_fresh_heartbeats_is_not_ready(aws: FakeAws, age: float, ready: int) -> None:
    for slot in aws.slots:
        slot["heartbeat"]["N"] = str(NOW - age)
    assert seen(aws).ready == ready


@pytest.mark.parametrize(("started", "ready"), [(NOW - 30, True), (NOW + 30, False)])
def test_items_from_before_the_start_of_a_warm_instance_are_ignored(
    aws: FakeAws, started: float, ready: bool
) -> None:
    # Its workers could not take themselves off the registry before it was stopped.
    aws.add_group("fallback", desired=1)
    aws.add_instance("fallback", "i-od", spot=False, launched=started, heartbeat=NOW, since=NOW - 900)
    [instance] = seen(aws, NOW + 60).fallback
    assert (instance.ready_since is not None) is ready


def test_every_expected_slot_must_report(aws: FakeAws) -> None:
    aws.set(config=config(slots={"g5.xlarge": 2}))
    assert only(controller(aws).run()).decision.state.ready == 0
    aws.slots.append(registry_item.dump(worker("i-1", NOW - 100, NOW, slot=1)))
    situation = only(controller(aws).run()).decision.state
    assert [i.ready_since for i in situation.primary if situation.is_ready(i)] == [NOW - 100]


def test_a_member_that_ec2_does_not_describe_yet_is_a_booting_instance(aws: FakeAws) -> None:
    aws.set(target="2", config=config(max=4))
    aws.slots = aws.slots[:3]
    aws.hidden = {"i-3"}
    situation = seen(aws)
    [new] = [i for i in situation.primary if i.id == "i-3"]
    assert (new.is_described, new.ready_since, str(new.pool)) == (False, None, "g5.xlarge@us-west-2a")
    # It is not terminated either, although it would be the first: its purchase option is unknown.
    assert sorted(i["InstanceId"] for i in aws.groups["primary"]["Instances"]) == ["i-1", "i-2", "i-3"]
    assert aws.groups["primary"]["DesiredCapacity"] == 3


def test_an_empty_description_lowers_and_buys_nothing(aws: FakeAws) -> None:
    controller(aws).run()
    aws.hidden = set(aws.instances)
    outcome = only(controller(aws, NOW + 10).run())
    assert actions(outcome) == ()
    # Their heartbeats say that they work; nothing is learned of boots or pools meanwhile.
    assert outcome.decision.state.ready == 4
    aws.hidden = set()
    assert only(controller(aws, NOW + 20).run()).decision.memory == outcome.decision.memory


def test_a_terminated_listed_member_does_not_serve_but_counts_for_aws(aws: FakeAws) -> None:
    aws.set(target="3")
    aws.groups["primary"]["DesiredCapacity"] = 5  # one more is asked for, and refused
    aws.instances["i-0"]["State"]["Name"] = "shutting-down"
    outcome = only(controller(aws).run())
    assert [i.id for i in outcome.decision.state.primary] == ["i-1", "i-2", "i-3"]
    # Three live, but the group still counts four: at three it would end one of them.
    assert actions(outcome) == (SetDesired(GroupRole.PRIMARY, 4, outcome.decision.reason),)


def test_a_member_counts_for_its_weight(aws: FakeAws) -> None:
    first, second, *_ = aws.groups["primary"]["Instances"]
    first["WeightedCapacity"] = second["WeightedCapacity"] = "4"
    second["LifecycleState"] = "Terminating:Wait"
    situation = seen(aws)
    assert situation.ready == 10
    assert situation.counted_slots[GroupRole.PRIMARY] == 6


def test_a_terminating_member_serves_until_its_deadline(aws: FakeAws) -> None:
    aws.groups["primary"]["Instances"][0]["LifecycleState"] = "Terminating:Wait"
    aws.groups["primary"]["Instances"][1]["HealthStatus"] = "Unhealthy"
    first = only(controller(aws).run()).decision
    assert (len(first.state.primary), first.state.ready) == (4, 3)
    assert first.memory.termination_deadlines == {"i-0": NOW + 120}
    # The group launches its successor by itself: it lacks one, and counts three.
    assert first.state.counted_slots[GroupRole.PRIMARY] == 3
    assert first.state.missing_spot == 1
    later = only(controller(aws, NOW + 30).run()).decision
    assert later.memory.termination_deadlines == {"i-0": NOW + 120}


@pytest.mark.parametrize("state", ["Terminating:Proceed", "Terminated", "Standby", "Warmed:Stopped"])
def test_a_member_out_of_service_does_not_count(aws: FakeAws, state: str) -> None:
    aws.groups["primary"]["Instances"][0]["LifecycleState"] = state
    assert len(seen(aws).primary) == 3


def test_a_requested_termination_is_no_interruption(aws: FakeAws) -> None:
    aws.set(target="3")
    before = dict(aws.instances), list(aws.groups["primary"]["Instances"])
    outcome = only(controller(aws).run())
    [gone] = actions(outcome)[0].instance_ids
    aws.instances, aws.groups["primary"]["Instances"] = before
    next(i for i in before[1] if i["InstanceId"] == gone)["LifecycleState"] = "Terminating:Wait"
    situation = seen(aws)
    assert (len(situation.primary), situation.primary_desired, situation.terminating_slots) == (3, 3, 0)


def row(instance: str, **changes: Any) -> dict[str, Any]:
    since, heartbeat = changes.pop("since", NOW - 3400), changes.pop("heartbeat", NOW - 5)
    return registry_item.dump(worker(instance, since, heartbeat, **changes))


@pytest.mark.parametrize(
    "malformed",
    [
        registry_item.key(partition("i-1"), "i-1", 0),
        {**row("i-1"), "heartbeat": {"S": "now"}},
        {**row("i-1"), "heartbeat": {"N": "one"}},
        {**row("i-1"), "state": {"S": "idle"}},
        {**row("i-1"), "since": "1"},
    ],
)
def test_a_malformed_item_is_skipped_and_reported(aws: FakeAws, malformed: dict[str, Any]) -> None:
    aws.slots = [slot for slot in aws.slots if slot["instance"]["S"] != "i-1"] + [malformed]
    outcome = only(controller(aws).run())
    assert outcome.decision.state.ready == 3
    assert outcome.read_errors == ("1 malformed items in the worker registry",)


def test_an_instance_with_malformed_items_stays_until_it_counts_as_not_reporting(aws: FakeAws) -> None:
    """It may be the only serving one while the others boot."""
    aws.set(target="2")
    for slot in aws.slots:
        slot["heartbeat"] = {"S": "now"} if slot["worker"]["S"] == "i-1/0" else {"N": str(NOW - 3600)}
    outcome = only(controller(aws).run())
    assert [i.id for i in outcome.decision.state.primary if i.has_malformed_records] == ["i-1"]
    assert "i-1" in aws.instances
    assert len(aws.instances) == 2
    for slot in aws.slots:
        if slot["worker"]["S"] != "i-1/0":
            slot["heartbeat"] = {"N": str(NOW + MAX_BOOT_SECONDS)}
    controller(aws, NOW + MAX_BOOT_SECONDS).run()
    assert "i-1" not in aws.instances


@pytest.mark.parametrize(("ahead", "ready"), [(MAX_CLOCK_SKEW_SECONDS, 4), (MAX_CLOCK_SKEW_SECONDS + 1, 3)])
def test_a_heartbeat_from_the_future_is_ignored(aws: FakeAws, ahead: float, ready: int) -> None:
    aws.slots[0]["heartbeat"]["N"] = str(NOW + ahead)
    assert seen(aws).ready == ready


@pytest.mark.parametrize("deadline", [NOW + 3600, NOW - MARK_RETENTION_SECONDS - 1])
def test_a_deadline_beyond_a_notice_is_ignored(aws: FakeAws, deadline: float) -> None:
    aws.slots.append(row("i-1", deadline=deadline))
    assert only(controller(aws).run()).decision.memory.termination_deadlines == {}


def test_an_item_of_another_worker_cannot_mark_an_instance_for_ever(aws: FakeAws) -> None:
    aws.slots.append(row("i-1", deadline=NOW + 100))
    assert only(controller(aws).run()).decision.memory.termination_deadlines == {"i-1": NOW + 100}
    later = NOW + 100 + MARK_RETENTION_SECONDS
    for slot in aws.slots[:4]:
        slot["heartbeat"]["N"] = str(later)
    assert only(controller(aws, later).run()).decision.memory.termination_deadlines == {}


def not_read(what: str, call: str) -> str:
    return f"{what} not read: An error occurred (Throttling) when calling the {call} operation: Rate exceeded"


def test_failed_optional_reads_block_nothing(aws: FakeAws) -> None:
    aws.slots.append(row("i-0", deadline=NOW + 100))
    aws.groups["primary"]["DesiredCapacity"] = 5
    reads = {
        "describe_spot_instance_requests": ("Spot requests", SPOT_REQUEST_ATTEMPTS),
        "describe_scaling_activities": ("launches of 'primary'", 1),
    }
    aws.throttled.update({call: failures for call, (_, failures) in reads.items()})
    outcome = only(controller(aws).run())
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    assert outcome.read_errors == tuple(not_read(what, call) for call, (what, _) in reads.items())


def test_reading_notices_is_retried_at_once(aws: FakeAws) -> None:
    aws.interrupted["i-2"] = NOW - 10
    aws.throttled["describe_spot_instance_requests"] = SPOT_REQUEST_ATTEMPTS - 1
    outcome = only(controller(aws).run())
    assert outcome.decision.memory.termination_deadlines == {"i-2": NOW + 110}
    assert not outcome.is_partial


def test_a_launch_failure_stays_if_it_cannot_be_read_again(aws: FakeAws) -> None:
    aws.set(target="5")
    aws.groups["primary"]["DesiredCapacity"] = 5
    aws.activities["primary"] = [activity("Failed", "VcpuLimitExceeded", 1)]
    assert actions(only(controller(aws).run())) == (Alarm("primary-limit", "VcpuLimitExceeded"),)
    aws.throttled.update(["describe_scaling_activities"])
    assert actions(only(controller(aws).run())) == ()
    assert aws.groups["fallback"]["DesiredCapacity"] == 0


def test_a_pass_is_limited_in_time_and_pages() -> None:
    moments = iter([0.0, 1.0, 2.0])
    budget = Budget(2.0, lambda: next(moments))
    with pytest.raises(BudgetError, match="the pass ended while reading its rows"):
        list(budget.pages("rows", ["one", "two", "three"]))
    endless = Budget(1.0, lambda: 0.0)
    assert len(list(endless.pages("rows", range(MAX_PAGES)))) == MAX_PAGES
    with pytest.raises(BudgetError, match=f"more than {MAX_PAGES} pages of rows"):
        list(endless.pages("rows", range(MAX_PAGES + 1)))


def test_items_of_unknown_writers_and_slots_are_not_read(aws: FakeAws) -> None:
    """They change neither the decision nor the number of calls."""
    aws.slots = [slot for slot in aws.slots if slot["instance"]["S"] != "i-1"]
    controller(aws).run()
    aws.calls.clear()
    before = only(controller(aws).run())
    calls = Counter(aws.calls)
    lies = [worker(f"i-x{n}", NOW - 3400, NOW) for n in range(5000)]
    lies += [replace(worker("i-2", NOW - 3400, NOW, slot=slot), deadline=NOW + 90) for slot in range(1, 99)]
    # By another instance, about i-1 and i-3: in its own partition, and in the group's.
    lies += [replace(worker("i-1", NOW - 3400, NOW), partition=p) for p in (partition("i-2"), "inference")]
    lies += [replace(worker("i-3", NOW, NOW, deadline=NOW + 90), partition="inference")]
    aws.slots += [registry_item.dump(lie) for lie in lies]
    after = only(controller(aws).run())
    assert after.decision.state.ready == before.decision.state.ready == 3
    assert after.decision.state.primary == before.decision.state.primary
    assert Counter(aws.calls) - calls == calls


def test_unprocessed_keys_of_many_are_read_later(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    aws.set(config=config(slots={"g5.xlarge": 60}))
    aws.slots = [
        registry_item.dump(worker(f"i-{n}", NOW - 3400, NOW - 5, slot=s)) for n in range(4) for s in range(60)
    ]
    aws.unprocessed = 2
    assert only(controller(aws).run()).decision.state.ready == 4
    assert aws.calls["batch_get_item"] == 1 + 3 + 2
    assert [wait for wait in waits if wait] == [0.05, 0.1]
    aws.unprocessed = 100  # as if the table had answered nothing
    again = only(controller(aws).run())
    assert again.read_errors[0].startswith("worker registry not read: ")
    assert (again.decision.state.registry_unknown, again.decision.state.ready) == (True, 4)


def test_a_suspended_process_raises_one_alarm_and_does_not_block_on_demand(aws: FakeAws) -> None:
    aws.set(target="5")
    aws.activities["primary"] = [activity("Failed", "UnfulfillableCapacity")]
    aws.groups["primary"] |= {"DesiredCapacity": 5, "SuspendedProcesses": [{"ProcessName": "AZRebalance"}]}
    aws.groups["primary"]["SuspendedProcesses"].append({"ProcessName": "Launch"})
    outcome = only(controller(aws).run())
    assert actions(outcome)[0] == Alarm(
        "primary-suspended", "processes suspended until resumed by an operator: Launch"
    )
    assert outcome.decision.memory.active_alarms == {"suspended:primary"}
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    again = only(controller(aws).run())
    assert not [action for action in actions(again) if isinstance(action, Alarm)]
    aws.groups["primary"]["SuspendedProcesses"].pop()
    assert only(controller(aws).run()).decision.memory.active_alarms == frozenset()


def test_progress_is_observed_unless_its_time_is_in_the_future_or_its_worker_is_stale(aws: FakeAws) -> None:
    report = Progress(7, 100, NOW - 40, NOW - 900, 0.5, 0.6)
    ahead = replace(report, reported_at=NOW + MAX_CLOCK_SKEW_SECONDS + 1)
    for number, progress, heartbeat in ((1, report, NOW), (2, ahead, NOW), (3, report, NOW - STALE_SECONDS)):
        written = replace(registry_item.parse(aws.slots[number]), progress=progress, heartbeat=heartbeat)
        aws.slots[number] |= registry_item.dump(written)
    found = {i.id: i.progress for i in seen(aws).primary}
    assert (found.pop("i-1"), set(found.values())) == (report, {None})


READ = "describe_spot_price_history"
PRICED: dict[str, Any] = {
    "zones": ["us-west-2a", "us-west-2b"],
    "onDemandPrices": {"g5.xlarge": 1.0, "g5.2xlarge": 2.0},
}


@pytest.fixture
def priced(aws: FakeAws) -> FakeAws:
    aws.set(config=config(**PRICED))
    aws.spot_prices = {
        ("g5.xlarge", "us-west-2a"): "0.500000",
        ("g5.xlarge", "us-west-2c"): "0.100000",
        ("g5.2xlarge", "us-west-2b"): "0.800000",
    }
    return aws


def price_of(aws: FakeAws, now: float = NOW) -> float:
    decision = only(controller(aws, now).run()).decision
    assert decision is not None
    return decision.state.spot_price


def test_the_price_is_the_minimum_relative_to_on_demand(priced: FakeAws) -> None:
    assert price_of(priced) == 0.4
    memory = controller(priced).memory_store.load("inference").memory
    assert memory.spot_prices == {"g5.xlarge@us-west-2a": 0.5, "g5.2xlarge@us-west-2b": 0.4}


def test_prices_are_read_once_while_they_are_valid(priced: FakeAws) -> None:
    for minute in range(10):
        price_of(priced, NOW + 60 * minute)
    assert priced.calls[READ] == 1
    priced.spot_prices["g5.2xlarge", "us-west-2b"] = "2.000000"
    assert price_of(priced, NOW + PRICE_SECONDS) == 0.5
    assert priced.calls[READ] == 2


def test_after_an_error_the_last_price_stays_and_the_read_is_retried(priced: FakeAws) -> None:
    price_of(priced)
    priced.throttled[READ] = 1
    outcome = only(controller(priced, NOW + PRICE_SECONDS).run())
    assert outcome.decision is not None
    assert outcome.decision.state.spot_price == 0.4
    assert outcome.read_errors == (not_read("Spot prices", READ),)
    assert not outcome.is_retryable
    assert only(controller(priced, NOW + PRICE_SECONDS + 60).run()).read_errors == ()
    assert priced.calls[READ] == 3


def test_without_on_demand_prices_no_call_is_made(aws: FakeAws) -> None:
    assert price_of(aws) == UNKNOWN_SPOT_PRICE
    assert aws.calls[READ] == 0


def test_prices_are_removed_with_the_on_demand_prices(priced: FakeAws) -> None:
    price_of(priced)
    priced.set(config=config())
    assert price_of(priced, NOW + 60) == UNKNOWN_SPOT_PRICE


def test_the_outcome_has_the_groups_cost(priced: FakeAws) -> None:
    priced.add_instance("primary", "i-dear", spot=False, launched=NOW - 600, heartbeat=NOW)
    for target in (5, 4):  # five instances live: On-Demand would be bought for the target
        priced.set(target=str(target))
        cost = only(controller(priced).run()).cost
        assert cost is not None
        assert (cost.paid, cost.on_demand) == (3.0, float(target))
