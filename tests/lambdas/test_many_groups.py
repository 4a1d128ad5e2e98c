"""Passes that fit: many groups, one large one, and what a pass says of what it did not reach."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError

from contracts import names
from lambdas.aws.budget import BudgetError
from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.passes import MAX_GROUPS, REST_SECONDS, Reporting
from lambdas.core.capacity import memory as codec
from lambdas.core.events import InterruptionNotice
from lambdas.core.model import TerminateInstances
from lambdas.handlers import controller as entry
from tests.fakes.aws import config
from tests.lambdas.many_groups import SlowAws, controller, limits, parameter, play, stack


@pytest.mark.parametrize(
    ("groups", "size", "factor"), [(200, 10, 1.0), (250, 10, 1.0), (250, 10, 2.0), (1, 5_000, 1.0)]
)
def test_each_group_is_decided_each_minute(groups: int, size: int, factor: float) -> None:
    played = play(stack(groups, size, factor), 4)
    assert played.longest <= 120
    assert max(played.undecided) <= 120
    assert sum(played.calls.values()) <= 3 * groups + 60 * (size > 10)


@pytest.mark.long
def test_a_thousand_groups_are_decided_within_three_minutes_and_the_limits() -> None:
    played = play(stack(1_000, 10), 3)
    assert played.longest <= 180
    assert sum(played.calls.values()) <= 1_000
    for count, limit in limits(played.calls).values():
        assert limit == "not published" or count <= limit / 2


@pytest.mark.long
def test_a_thousand_groups_that_all_lack_capacity_take_turns() -> None:
    """Each costs four calls of its own; the oldest decision comes first."""
    aws = stack(1_000, 10, lacks=True)
    played = play(aws, 4)
    assert played.decided[0] < 1_000
    assert played.longest <= 180
    assert len(aws.delayed) < 100  # one wake-up for those that were read together


def test_the_next_pass_begins_with_those_that_were_left() -> None:
    aws = stack(3 * MAX_GROUPS, 1)
    left: list[str] = []
    first = controller(aws).run(seconds=3.0, reporting=Reporting(unserved=left.extend))
    assert {o.group for o in first} | {*left} == {f"g{n:04}" for n in range(3 * MAX_GROUPS)}
    assert 0 < len(first) < 3 * MAX_GROUPS
    assert [o.group for o in controller(aws).run(seconds=50.0)][: len(left)] == left


def test_a_clock_that_was_ahead_makes_no_group_wait() -> None:
    aws = stack(3, 1)
    aws.now += 3600
    controller(aws).run()
    aws.now -= 3600
    aws.tokens.clear()
    assert len(controller(aws).run()) == 3


@pytest.mark.parametrize("text", ["?", "{}", '{"g0000": ["now"]}', '{"g0000": [1, 2, 3, 4, 5]}', "[1]"])
def test_an_unreadable_order_is_written_again(text: str) -> None:
    aws = stack(3, 1)
    aws.memory[names.VISITS] = {"group": {"S": names.VISITS}, "version": {"N": "7"}, "visits": {"S": text}}
    assert len(controller(aws).run()) == 3
    assert json.loads(aws.memory[names.VISITS]["visits"]["S"]).keys() == {"g0000", "g0001", "g0002"}


@pytest.mark.long
def test_an_execution_that_is_killed_loses_little_of_the_order() -> None:
    aws = stack(1_000, 10, lacks=True)
    served: list[str] = []

    def note(outcome: Any) -> None:
        served.append(outcome.group)
        if len(served) == 200:
            raise KeyboardInterrupt  # Lambda ends the process

    with pytest.raises(KeyboardInterrupt):
        controller(aws).run(seconds=50.0, reporting=Reporting(note))
    again = {o.group for o in controller(aws).run(seconds=50.0)}
    assert len(again & {*served}) <= 2 * MAX_GROUPS


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "InvalidSpotFleetRequestId.NotFound"}}, "DescribeSpotFleetRequests"),
        BudgetError("more than 64 pages of instances"),
    ],
    ids=["AWS", "budget"],
)
def test_one_group_that_cannot_be_read_costs_no_other_its_decision(error: Exception) -> None:
    """A fleet's id that AWS does not know fails the call for all fleets."""
    aws = stack(20, 2)
    for number in (3, 4):
        aws.add_fleet(f"sfr-{number}", 2)
        leaf = parameter(f"g{number:04}", "config")
        aws.parameters[leaf] = config(
            kind="spot-fleet", primary=f"sfr-{number}", fallback=f"g{number:04}-fallback"
        )
    describe = aws._describe_spot_fleet_requests

    def refusing(SpotFleetRequestIds: list[str]) -> Any:  # noqa: N803
        if "sfr-3" in SpotFleetRequestIds:
            raise error
        return describe(SpotFleetRequestIds)

    aws._describe_spot_fleet_requests = refusing  # type: ignore[method-assign]
    outcomes = controller(aws).run()
    missing = [
        o.group for o in outcomes if o.decision and "missing:primary" in o.decision.memory.active_alarms
    ]
    undecided = [o.group for o in outcomes if o.decision is None]
    assert (missing, undecided) == ((["g0003"], []) if isinstance(error, ClientError) else ([], ["g0003"]))
    assert len(outcomes) == 20


def test_a_notice_is_written_to_its_own_group_only_and_that_comes_first() -> None:
    aws = stack(2 * MAX_GROUPS, 1)
    controller(aws).run()
    noticed = next(i for i, one in aws.instances.items() if one["_group"] == "g0077-primary")
    foreign = "i-0f0e1d2c3b4a59687"
    aws.instances[foreign] = {"InstanceId": foreign, "Tags": [], "State": {"Name": "running"}}
    events = [InterruptionNotice(i, aws.now + 120) for i in (noticed, foreign)]
    before = {name: item["version"] for name, item in aws.memory.items()}
    outcomes = controller(aws).run(events)
    assert outcomes[0].group == "g0077"
    changed = {name for name, item in aws.memory.items() if item["version"] != before.get(name)}
    assert changed == {"g0077", names.VISITS}


def test_a_job_that_has_ended_is_looked_at_every_tenth_minute_and_has_no_series(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aws = SlowAws()
    for name in ("ended", "running"):
        aws.add(0, name)
        aws.set(
            name, config=config(primary=f"{name}-primary", fallback=f"{name}-fallback", run="r1"), target="0"
        )
    aws.set("ended", finished="r1")
    monkeypatch.setenv(names.ENV_STACK, "dev")
    monkeypatch.setattr(entry, "logger", Logger(service="ended", stream=io.StringIO()))
    looked: list[str] = []
    for _ in range(21):
        looked += [
            outcome.group
            for outcome in controller(aws).run(reporting=entry.reporting(entry._report, [], entry.logger))
        ]
        aws.now += 60
    assert looked.count("running") == 21
    assert looked.count("ended") == 3
    emitted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["group"] for line in emitted if "group" in line} == {"running"}
    assert not [line for line in emitted if names.METRIC_UNDECIDED_SECONDS in line]  # it is not late
    aws.set("ended", finished="none", target="1")  # `gpu-spot jobs resume`
    [outcome] = [o for o in controller(aws).run() if o.group == "ended"]
    assert outcome.is_applied
    assert REST_SECONDS == 600


def test_six_hundred_instances_end_in_one_pass() -> None:
    aws = stack(1, 600)
    controller(aws).run()
    aws.calls.clear()
    aws.set("g0000", target="0")
    started = aws.now
    [outcome] = controller(aws).run()
    assert (outcome.errors, aws.instances) == ((), {})
    assert aws.now - started < 10
    assert aws.calls["set_instance_protection"] == 12
    assert aws.calls["terminate_instance_in_auto_scaling_group"] == 0


def test_what_a_pass_has_no_time_to_terminate_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for each, of 0.1 s: 600 are more than a pass, and none is forgotten."""
    monkeypatch.setattr(AutoScalingService, "_should_scale_in", lambda *_: False)
    aws = stack(1, 600, factor=2.0)
    one = controller(aws)
    one.run()
    aws.set("g0000", target="0")
    started, passes = aws.now, 0
    while aws.instances:
        began, running = aws.now, set(aws.instances)
        [outcome] = one.run(seconds=50.0)
        assert aws.now - began < 52
        passes += 1
        memory = codec.parse(aws.memory["g0000"]["memory"]["S"])
        assert memory.termination_requests.keys() & aws.instances.keys() == set()
        asked = [a for a in outcome.decision.actions if isinstance(a, TerminateInstances)]
        assert {i for a in asked for i in a.instance_ids} == running
        if aws.instances:
            assert "are left for the next pass" in str(outcome.error)
    assert passes == 2
    assert aws.now - started < 120


def test_a_pass_without_enough_time_is_not_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repetition would be as short: the passes would be three a minute."""
    aws = stack(1_000, 10, lacks=True)
    monkeypatch.setenv(names.ENV_STACK, "dev")
    monkeypatch.setattr(entry, "_controller", lambda: controller(aws))
    monkeypatch.setattr(entry, "_report", lambda _: None)

    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 90_000

    body = json.dumps({"detail-type": "Scheduled Event"})
    aws.failures["describe_scaling_activities"] = ClientError({"Error": {"Code": "Throttling"}}, "Describe")
    entry.handler({"Records": [{"messageId": "1", "receiptHandle": "1", "body": body}]}, Context())
    assert 20 not in aws.delayed
    assert 40 not in aws.delayed
