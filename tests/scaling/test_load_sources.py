"""A pass of the scaler by a request log: metrics as CloudWatch returns them, and its errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import pytest

from contracts import names
from contracts.group.scaling_settings import RequestLogSettings
from lambdas.aws.scaler import ScalerOutcome, build
from lambdas.core.scaling.model import Reason
from lambdas.handlers import scaler as handler
from tests.health.fake_aws import GROUP
from tests.scaling.test_scaler import PLACE, SETTINGS, ScalerAws

MEASURED: Final = RequestLogSettings(unit_seconds=0.001)
STATED: Final = RequestLogSettings(seconds_per_request=2.0)
ENDED: Final = RequestLogSettings(counts_ended=True, unit_seconds=0.001)


@dataclass
class LoggedAws(ScalerAws):
    """A service without a queue; ``lines`` are (requests, milliseconds of each) by the start of a minute."""

    lines: dict[float, tuple[int, float | None]] = field(default_factory=dict)
    status: str = "Complete"
    has_queue_state: bool = False

    def log(self, requests: int, milliseconds: float | None = 2000.0) -> ScalerOutcome:
        """Log a minute and return the pass two minutes later."""
        self.lines[self.now - self.now % 60] = requests, milliseconds
        return self.minute()

    def logged(self, minutes: int, requests: int, milliseconds: float | None = 2000.0) -> ScalerOutcome:
        for _ in range(minutes):
            outcome = self.log(requests, milliseconds)
            assert outcome.error is None, outcome.error
        return outcome

    def _get_metric_data(self, MetricDataQueries: Any, StartTime: datetime, EndTime: datetime) -> Any:  # noqa: N803
        results = []
        for query in MetricDataQueries:
            metric = query["MetricStat"]["Metric"]
            assert metric["Namespace"] == names.REQUEST_LOG_NAMESPACE
            values = {}
            for at, (requests, milliseconds) in sorted(self.lines.items(), reverse=True):
                if StartTime.timestamp() <= at < EndTime.timestamp():
                    value = self._value(
                        metric["MetricName"], query["MetricStat"]["Stat"], requests, milliseconds
                    )
                    if value is not None:
                        values[at] = value
            times = [datetime.fromtimestamp(at, StartTime.tzinfo) for at in values]
            results.append(
                {
                    "Id": query["Id"],
                    "Timestamps": times,
                    "Values": [*values.values()],
                    "StatusCode": self.status,
                }
            )
        return {"MetricDataResults": results}

    @staticmethod
    def _value(metric: str, statistic: str, requests: int, milliseconds: float | None) -> float | None:
        """A minute without a match has one sample, of the default value 0; one without a number has none."""
        if metric == f"dev/{GROUP}/requests":
            assert statistic == "Sum"
            return float(requests)
        assert metric == f"dev/{GROUP}/seconds"
        if requests and milliseconds is None:
            return None
        if statistic == "SampleCount":
            return float(max(1, requests))
        return requests * (milliseconds or 0.0)


def service(log: RequestLogSettings = MEASURED, size: int = 8, minimum: int = 1) -> LoggedAws:
    aws = LoggedAws()
    aws.create_group(size, replace(SETTINGS, minimum=minimum, log=log))
    return aws


def reasons(outcome: ScalerOutcome) -> set[Reason]:
    assert outcome.decision is not None
    return set(outcome.decision.reasons)


@pytest.mark.parametrize("log", [MEASURED, STATED, ENDED], ids=["measured", "stated", "ended"])
def test_the_target_follows_the_log(log: RequestLogSettings) -> None:
    aws = service(log)
    outcome = aws.logged(30, 120)
    assert outcome.decision is not None
    # Two requests a second of two seconds each keep four workers busy, two on an instance.
    assert outcome.decision.worker_rate == pytest.approx(0.5)
    assert 3 <= aws.target <= 5
    aws.logged(3, 480)
    assert aws.target >= 9


def test_a_pass_reads_the_metrics_once_and_only_of_a_service_with_a_log() -> None:
    aws = service()
    aws.logged(3, 120)
    aws.calls.clear()
    aws.log(120)
    assert aws.calls["get_metric_data"] == 1


@pytest.mark.parametrize("state", ["no lines", "InternalError", "PartialData", "throttled"])
def test_without_values_the_target_is_held_and_the_load_is_unknown(state: str) -> None:
    aws = service()
    aws.logged(30, 240)
    before = aws.target
    for _ in range(30):
        if state == "throttled":
            aws.throttled["get_metric_data"] = 1
        aws.status = state if state[0].isupper() else "Complete"
        outcome = aws.minute() if state == "no lines" else aws.log(0)
    assert aws.target == before
    assert Reason.LOG_UNKNOWN in reasons(outcome)
    assert handler.gauges(outcome, frozenset(reasons(outcome)))[names.METRIC_SCALING_LOAD_UNKNOWN] == 1
    assert bool(outcome.read_errors) == (state == "throttled")
    assert aws.logged(2, 240).error is None


def test_events_without_a_request_scale_in_to_the_minimum() -> None:
    for minimum in (0, 1):
        aws = service(minimum=minimum)
        aws.logged(10, 240)
        outcome = aws.logged(40, 0)
        assert aws.target == minimum
        assert Reason.LOG_UNKNOWN not in reasons(outcome)


def test_lines_without_a_number_are_no_load_of_zero() -> None:
    aws = service()
    aws.logged(30, 240)
    before = aws.target
    outcome = aws.logged(30, 240, None)
    assert aws.target == before
    assert Reason.LOG_UNKNOWN in reasons(outcome)


def test_the_reason_of_another_source_is_not_given() -> None:
    outcome = build(service().client, PLACE, lambda: 0.0).run(50)
    assert [Reason.QUEUE_UNKNOWN in reasons(one) for one in outcome if one.decision] == [False]
