"""The scaler in the whole local cloud: the target follows the load, and stays without load data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts import names
from tests.apart import apart
from tests.e2e.simulated_scaling import MAX_TARGET, Outcome, simulate_all
from tests.iam import allowed_actions, allows

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def played() -> Outcome:
    return apart(simulate_all)


def test_the_target_follows_the_load(played: Outcome) -> None:
    begin, rise = played.minutes["begin"][-1], played.minutes["rise"]
    assert rise[1].target > begin.target  # one row may still tell of both
    assert rise[-1].target >= 8  # 4 a second are 8 workers at work
    assert rise[-1].running == rise[-1].target
    assert rise[-1].waiting < 60


def test_an_unreachable_queue_holds_the_target_and_raises_the_alarm(played: Outcome) -> None:
    silence = played.minutes["silence"]
    assert {minute.target for minute in silence} == {played.minutes["rise"][-1].target}
    blind = [minute.gauges[names.METRIC_SCALING_LOAD_UNKNOWN] for minute in silence]
    # The last row is believed for three minutes; then for ten on end, as the alarm wants it.
    assert blind[:2] == [0.0, 0.0]
    assert blind[-10:] == [1.0] * 10
    assert "queue-unknown" in silence[-1].reasons
    assert played.minutes["recovery"][-1].gauges[names.METRIC_SCALING_LOAD_UNKNOWN] == 0.0


def test_workers_without_throughput_block_scale_in_and_raise_the_alarm(played: Outcome) -> None:
    stall = played.minutes["stall"]
    targets = [minute.target for minute in stall]
    assert targets == sorted(targets)
    assert stall[0].gauges[names.METRIC_SCALING_THROUGHPUT_UNKNOWN] == 0.0
    assert stall[-1].gauges[names.METRIC_SCALING_THROUGHPUT_UNKNOWN] == 1.0
    assert stall[-1].gauges[names.METRIC_SCALING_AT_MAXIMUM] == 1.0
    assert targets[-1] == MAX_TARGET


def test_a_night_without_requests_has_no_worker_and_the_first_request_wakes_one(played: Outcome) -> None:
    night, wake = played.minutes["night"], played.minutes["wake"]
    targets = [minute.target for minute in night]
    assert targets == sorted(targets, reverse=True)
    assert set(targets[:8]) == {MAX_TARGET}  # within the cooldown
    assert min(targets[:14]) > 0  # a quarter of an hour of silence first
    assert (night[-1].target, night[-1].running) == (0, 0)
    assert wake[0].target >= 1
    assert wake[-1].running >= 1


def test_one_function_writes_the_target_and_a_second_up_leaves_it(played: Outcome) -> None:
    assert {writer for writer, parameter in played.writers if parameter == "target"} == {"scaler"}
    assert {parameter for writer, parameter in played.writers if writer == "scaler"} == {"target"}
    assert played.second_up == 0


def test_its_role_has_exactly_the_needed_permissions(played: Outcome) -> None:
    role, asked = played.permissions
    assert [request for request in asked if not allows(role, request)] == []
    used = {request.action for request in asked}
    assert allowed_actions(role) - used == {"logs:CreateLogStream", "logs:PutLogEvents"}  # Lambda's own
    for request in asked:
        if request.action == "dynamodb:PutItem":
            controllers = {**request.context, "dynamodb:LeadingKeys": ["inference"]}
            assert not allows(role, replace(request, context=controllers))
        if request.action == "ssm:PutParameter":
            for other in ("groups/inference/wishes", "groups/batch/target"):
                place = request.resource.partition("groups/")[0] + other
                assert not allows(role, replace(request, resource=place))
