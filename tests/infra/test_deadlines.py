"""``training[].deadline``: valid values, conflicting keys, and its alarm."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts import names
from infra.components.monitoring.job_alarms import alarms
from infra.schema import Settings
from infra.settings import SettingsError
from tests.infra.test_refusals import JOB, settings, training

WHEN = "2027-03-01T18:00:00+01:00"


def declared(**job: Any) -> Settings:
    return settings("prod", training(**{"deadline": WHEN, **job}))


def with_capacity(**changes: Any) -> dict[str, Any]:
    return {"capacity": {**JOB["capacity"], **changes}}


@pytest.mark.parametrize("text", [WHEN, "2027-03-01T17:00:00Z", "2027-03-01 12:00-05:00"])
def test_a_deadline_is_one_moment_however_its_zone_is_written(text: str) -> None:
    [job] = declared(deadline=text).training
    assert job.deadline_at == datetime(2027, 3, 1, 17, tzinfo=UTC).timestamp()


def test_without_one_there_is_none() -> None:
    [job] = settings("prod", training()).training
    assert job.deadline_at == 0


@pytest.mark.parametrize("text", ["2027-03-01T18:00:00", "2027-03-01", "tomorrow", "", "1803924000"])
def test_an_invalid_time_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match=r"training\[0\].deadline.*2027-03-01T18:00:00\+01:00"):
        declared(deadline=text)


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (with_capacity(fallback={"enabled": False}), "fallback.enabled false"),
        (
            with_capacity(fallback={"policyParameters": {"shortageCost": 4}}),
            "fallback.policy or fallback.policyParameters",
        ),
        (
            with_capacity(fallback={"policy": "ready-handover"}),
            "fallback.policy or fallback.policyParameters",
        ),
        (with_capacity(onDemandBase=1), "onDemandBase or spotPercentage"),
        (with_capacity(spotPercentage=50), "onDemandBase or spotPercentage"),
    ],
)
def test_a_second_policy_is_rejected(job: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingsError, match=rf"training\[0\].deadline.*{error}"):
        declared(**job)


def test_a_date_that_has_passed_is_a_warning_for_the_job_may_be_done() -> None:
    stack = declared()
    assert list(stack.past_deadlines(datetime(2027, 3, 1, 16, 59, tzinfo=UTC))) == []
    [warning] = stack.past_deadlines(datetime(2027, 3, 1, 17, 0, tzinfo=UTC))
    assert warning.startswith(f"gpu-spot:training[0].deadline: {WHEN} has passed")


def test_a_job_with_a_deadline_has_an_alarm_after_one_minute() -> None:
    def deadline_alarms(has_deadline: bool) -> list[Any]:
        found = alarms("prod", "resnet", has_deadline=has_deadline)
        return [alarm for alarm in found if alarm.metric == names.METRIC_DEADLINE_AT_RISK]

    assert deadline_alarms(has_deadline=False) == []
    [alarm] = deadline_alarms(has_deadline=True)
    assert (alarm.name, alarm.threshold, alarm.periods, alarm.period_seconds) == ("resnet-deadline", 1, 1, 60)
