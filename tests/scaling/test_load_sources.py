"""A pass of the scaler by a request log, its metrics in CloudWatch, and its minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.group.scaling_settings import Bounds, RequestLogSettings
from contracts.registry.queue_state import QueueState
from lambdas.aws.scaler import ScalerOutcome, build
from lambdas.core.scaling import decide
from lambdas.core.scaling.decide import SATURATED_GROWTH, ScalingDecision
from lambdas.core.scaling.log_source import SETTLED_SECONDS, STALE_SECONDS, LogMinute, LogSource
from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from lambdas.core.scaling.model import LoadObservation, LoadSource, Reason
from lambdas.core.scaling.queue_source import QueueSource
from lambdas.core.scaling.throughput import WorkDone
from lambdas.handlers import scaler as handler
from tests.fakes.aws import GROUP
from tests.scaling.test_scaler import PLACE, SETTINGS, ScalerAws, reasons

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


@pytest.mark.parametrize("log", [MEASURED, STATED, ENDED], ids=["measured", "stated", "ended"])
def test_the_target_follows_the_log(log: RequestLogSettings) -> None:
    aws = service(log)
    outcome = aws.logged(30, 120)
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


MONDAY: Final = 4 * 86400.0
BOUNDS: Final = Bounds(wait_seconds=60, minimum=1, maximum=60)
TYPE: Final = "g6.xlarge"


def observed(now: float, target: int, source: LoadSource, work: WorkDone | None = None) -> LoadObservation:
    memory = ScalingMemory()
    work_done = source.work_done(now, {}, memory.throughput) if work is None else {TYPE: work}
    return LoadObservation(
        now, target, source.load(now), {TYPE: target}, 0, work_done, 180.0, unknown=source.unknown
    )


def log(
    now: float, rate: float, seconds: float, waits: float = 0.0, *, counts_ended: bool = False
) -> LogSource:
    ended = 60 * (rate - waits)
    return LogSource([LogMinute(now - 60, 60 * rate, ended, ended * seconds)], counts_ended)


def queue(now: float, rate: float) -> QueueSource:
    return QueueSource(QueueState(now, 0, int(rate > 0), 0.0, rate, rate, 1))


def decided(
    sources: Sequence[LoadSource], bounds: Bounds = BOUNDS, target: int = 20, work: WorkDone | None = None
) -> tuple[ScalingDecision, list[int]]:
    """Return the last decision of a minute for each source, and the targets."""
    memory, targets = ScalingMemory(), [target]
    for minute, source in enumerate(sources):
        decision = decide(observed(MONDAY + 60 * minute, targets[-1], source, work), bounds, memory)
        memory = parse(dump(decision.memory))
        targets.append(decision.target)
    return decision, targets


def steady(minutes: int, rate: float, seconds: float, **more: bool) -> list[LoadSource]:
    return [log(MONDAY + 60 * minute, rate, seconds, **more) for minute in range(minutes)]


@given(st.floats(0.2, 8.0), st.floats(0.5, 5.0), st.sampled_from([10.0, 60.0, 300.0]))
def test_in_a_steady_state_queue_and_log_desire_the_same(rate: float, seconds: float, wait: float) -> None:
    bounds = replace(BOUNDS, wait_seconds=wait)
    states = [queue(MONDAY + 60 * minute, rate) for minute in range(60)]
    by_queue, _ = decided(states, bounds, work=WorkDone(60 * rate, 60 * rate * seconds))
    by_log, _ = decided(steady(60, rate, seconds), bounds)
    stated = [
        LogSource([LogMinute(MONDAY + 60 * minute - 60, 60 * rate, None, 60 * rate * seconds)], False)
        for minute in range(60)
    ]
    by_stated, _ = decided(stated, bounds)
    assert by_queue.desired is not None
    assert by_log.desired == by_queue.desired
    # Without a measured start nothing adjusts the wait that is staffed for.
    assert by_stated.desired is not None
    assert by_queue.desired <= by_stated.desired <= by_queue.desired + 1


def test_the_newest_settled_minute_counts() -> None:
    minutes = [LogMinute(MONDAY - age, 60.0 * age, 1.0, 1.0) for age in (30, 90, 150, 240)]
    load = LogSource(minutes, False).load(MONDAY)
    assert (load.ended_at, load.arrival_rate) == (MONDAY - 90, 90.0)
    for age, known in ((SETTLED_SECONDS - 1, False), (SETTLED_SECONDS, True), (STALE_SECONDS, True)):
        source = LogSource([LogMinute(MONDAY - age, 60.0, 1.0, 1.0)], False)
        assert (source.load(MONDAY) is not None) == known
    assert LogSource([LogMinute(MONDAY - STALE_SECONDS - 1, 60.0, 1.0, 1.0)], False).load(MONDAY) is None


def test_the_first_request_wakes_a_service_at_zero() -> None:
    at = MONDAY + 60 * 70
    _, targets = decided(
        [*steady(30, 4.0, 4.0), *_silence(30, 40), log(at, 1 / 60, 4.0)], replace(BOUNDS, minimum=0)
    )
    assert targets[-2] == 0
    assert targets[-1] >= 1


def _silence(begin: int, minutes: int) -> list[LoadSource]:
    return [
        LogSource([LogMinute(MONDAY + 60 * (begin + minute) - 60, 0.0, 0.0, 0.0)], False)
        for minute in range(minutes)
    ]


def test_values_that_are_no_numbers_leave_the_throughput_unknown() -> None:
    sources = [
        LogSource([LogMinute(MONDAY + 60 * minute - 60, 240.0, 0.0, 0.0)], False) for minute in range(30)
    ]
    decision, targets = decided(sources)
    assert Reason.THROUGHPUT_UNKNOWN in decision.reasons
    assert set(targets) == {20}


def test_requests_that_do_not_end_wait_and_add_workers() -> None:
    usual, _ = decided(steady(31, 4.0, 4.0))
    late, _ = decided([*steady(30, 4.0, 4.0), log(MONDAY + 60 * 30, 6.0, 4.0, waits=2.0)])
    assert usual.memory.waiting_estimate.requests == 0
    assert late.memory.waiting_estimate.requests == pytest.approx(120.0)
    assert late.target > usual.target


def test_an_interval_counts_once_and_a_delay_counts_all_of_it() -> None:
    first = log(MONDAY + 60 * 30, 6.0, 4.0, waits=2.0)
    twice, _ = decided([*steady(30, 4.0, 4.0), first, first])
    assert twice.memory.waiting_estimate.requests == pytest.approx(120.0)
    later = log(MONDAY + 60 * 32, 6.0, 4.0, waits=2.0)
    gap, _ = decided([*steady(30, 4.0, 4.0), LogSource((), False), LogSource((), False), later])
    assert gap.memory.waiting_estimate.requests == pytest.approx(360.0)


def test_requests_without_an_end_do_not_accumulate() -> None:
    """A tenth of the requests fail without a line; the workers are idle for half of the time."""
    sources = [log(MONDAY + 60 * minute, 2.0, 4.0, waits=0.2) for minute in range(600)]
    decision, _ = decided(sources, replace(BOUNDS, minimum=16))
    assert decision.memory.waiting_estimate.requests == 0


def test_while_workers_are_busy_a_log_of_ends_is_a_lower_bound() -> None:
    for rate, grows in ((4.9, True), (4.0, False)):  # of 5 requests a second that 20 workers end
        decision, _ = decided(steady(20, rate, 4.0, counts_ended=True)[:1])
        assert (decision.target == 20 * SATURATED_GROWTH) == grows


def test_lines_delivered_twice_add_workers_and_late_ones_remove_none_within_the_cooldown() -> None:
    usual, targets = decided(steady(40, 4.0, 4.0))
    twice, _ = decided([*steady(40, 4.0, 4.0), log(MONDAY + 60 * 40, 8.0, 4.0)])
    assert twice.target > usual.target
    _, after = decided([*steady(40, 4.0, 4.0), log(MONDAY + 60 * 40, 0.4, 4.0)])
    assert after[-1] == targets[-1]
