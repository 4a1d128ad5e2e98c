"""Reports of HTTP workers, filled from the requests that the proxies counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.registry.batches import BatchRow
from contracts.registry.http_state import HttpState, WorkerTraffic
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.core.queues.worker_requests import batches, with_requests
from lambdas.core.scaling.batches import BatchesDone, BatchTime, BatchTimes
from lambdas.core.scaling.throughput import Throughput

NOW = 1_800_000_000.0
SILENT = Worker("ocr", "i-1", 0, NOW - 3600, NOW, "ready", report=WorkerReport("v1"))
TRAFFIC = WorkerTraffic("i-1", 0, NOW - 3600, 900, 9, 300.0, 2.0, 0.02, 0.5, 2.0)


def state(*traffic: WorkerTraffic, unreadable: int = 0) -> HttpState:
    return HttpState(NOW - 20, 0, 2, 0.0, 2.0, 2.0, 0.0, 2, unreadable, traffic)


def filled(worker: Worker, observed: HttpState, concurrency: int = 16) -> WorkerReport:
    [found] = with_requests({"i-1": [worker]}, observed, concurrency)["i-1"]
    assert found.report is not None
    return found.report


def test_a_worker_has_the_requests_that_the_proxies_counted() -> None:
    report = filled(SILENT, state(TRAFFIC))
    assert (report.version, report.reported_at) == ("v1", NOW - 20)
    assert (report.done, report.failed, report.rate, report.failed_rate) == (900, 9, 2.0, 0.02)
    assert (report.busy, report.batch_size) == (0.5, 16)
    # 600 requests in 150 busy seconds, four at once: 150 batches of a second
    assert report.batches == (BatchRow(4, 150, 600, 150.0),)


def test_a_worker_that_reports_by_itself_is_left_alone() -> None:
    reporting = replace(SILENT, report=WorkerReport("v1", reported_at=NOW, done=3))
    assert filled(reporting, state(TRAFFIC)) == reporting.report


@pytest.mark.parametrize("traffic", [[], [replace(TRAFFIC, since=NOW - 30)], [replace(TRAFFIC, slot=1)]])
def test_a_worker_at_no_proxy_ends_no_requests(traffic: list[WorkerTraffic]) -> None:
    report = filled(SILENT, state(*traffic))
    assert (report.reported_at, report.done, report.rate, report.batches) == (NOW - 20, 0, 0.0, ())


def test_while_a_proxy_cannot_be_read_shares_are_unknown() -> None:
    report = filled(SILENT, state(TRAFFIC, unreadable=1))
    assert (report.done, report.busy, report.failed_rate, report.batches) == (900, None, None, ())
    assert filled(SILENT, state(unreadable=1)) == SILENT.report


@given(st.floats(0, 1000), st.floats(0, 1), st.floats(0, 1), st.floats(0, 5000), st.floats(0, 300))
def test_any_traffic_gives_a_valid_report(
    rate: float, failed: float, busy: float, in_flight: float, seconds: float
) -> None:
    traffic = WorkerTraffic("i-1", 0, NOW - 3600, 0, 0, seconds, rate, rate * failed, busy, in_flight)
    assert filled(SILENT, state(traffic)).reported_at == NOW - 20


@given(st.floats(0.05, 4.0), st.floats(0.01, 2.0))
def test_the_servers_time_for_requests_at_once_is_learned(fixed: float, per_request: float) -> None:
    """A server that needs ``fixed + per_request · b`` seconds for b requests at once, at several loads."""
    learned = BatchTimes()
    for at_once in (1.0, 2.0, 4.0, 8.0, 12.0) * 20:
        each = fixed + per_request * at_once
        # A minute in which it is busy for 0.8 of the time.
        traffic = replace(TRAFFIC, rate=0.8 * at_once / each, busy=0.8, in_flight=0.8 * at_once, seconds=3e5)
        [row] = batches(traffic)
        done = BatchesDone({row.max_size: (float(row.batches), float(row.requests), row.seconds)}, 16)
        learned = learned.update({"g6.xlarge": done})
    speed = learned.speed(Throughput(), {"g6.xlarge": 1})
    assert speed is not None
    time = BatchTime(fixed, per_request, 16)
    assert speed.rate(12.0) == pytest.approx(time.rate(12.0), rel=0.02)
