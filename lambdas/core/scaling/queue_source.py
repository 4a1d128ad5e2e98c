"""The load of a service from the state of its queue or its proxies, and its workers' reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.registry.batches import WINDOW_SECONDS
from contracts.registry.http_state import HttpState
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.scaling.batches import BatchesDone
from lambdas.core.scaling.model import POLL_SECONDS, Load, Reason
from lambdas.core.scaling.staffing import LATE_SHARE
from lambdas.core.scaling.throughput import Throughput, WorkDone

SATURATED_SECONDS: Final = 300.0
"""If the oldest request has waited this long, workers were busy for the whole window of their rate."""
_MAX_REPORT_AGE_SECONDS: Final = 180.0
"""Workers report every few seconds; an older report is ignored."""
_MIN_GPU_USE_PERCENT: Final = 5.0
"""NVML reports whole percents of short samples; lower values are too coarse."""


@dataclass(frozen=True, slots=True)
class QueueSource:
    """See `LoadSource`; ``state`` is None if the queue watcher wrote none that can be read.

    ``refused_rate`` and ``is_estimate`` are those of the `Load`.
    """

    state: QueueState | None
    unknown: Reason = Reason.QUEUE_UNKNOWN
    refused_rate: float = 0.0
    is_estimate: bool = False

    def load(self, now: float) -> Load | None:
        """See `LoadSource`; None if the state is stale."""
        state = self.state
        if state is None or not state.is_fresh(now):
            return None
        return Load(
            ended_at=state.observed_at,
            arrival_rate=state.publish_rate,
            waiting=state.ready,
            in_flight=state.in_flight,
            oldest_seconds=state.oldest_seconds,
            start_rate=state.ack_rate,
            refused_rate=self.refused_rate,
            is_estimate=self.is_estimate or state.publish_rate is None,
        )

    def work_done(
        self, now: float, workers: Mapping[str, Sequence[Worker]], throughput: Throughput
    ) -> Mapping[str, WorkDone]:
        """See `LoadSource`; from the workers' reports."""
        load = self.load(now)
        oldest_seconds = load.oldest_seconds if load is not None and load.waiting else None
        return dict(_work_done(now, oldest_seconds or 0.0, workers, throughput))

    def batches(self, now: float, workers: Mapping[str, Sequence[Worker]]) -> Mapping[str, BatchesDone]:
        """See `LoadSource`; from the workers' reports."""
        reports = {name: _fresh_reports(now, ready) for name, ready in workers.items()}
        return {name: done for name, of_type in reports.items() if (done := _batches_done(of_type))}


def http_source(state: HttpState | None) -> QueueSource:
    """Return the source of a service with proxies: what waits there is its queue."""
    if state is None:
        return QueueSource(None, Reason.HTTP_UNKNOWN)
    return QueueSource(state.queue, Reason.HTTP_UNKNOWN, state.refused_rate, state.unreadable > 0)


def _fresh_reports(now: float, workers: Sequence[Worker]) -> list[WorkerReport]:
    return [
        worker.report
        for worker in workers
        if worker.report is not None and abs(now - worker.report.reported_at) < _MAX_REPORT_AGE_SECONDS
    ]


def _batches_done(reports: Sequence[WorkerReport]) -> BatchesDone | None:
    """Return the batches of a minute: the mean of the minutes that the reports cover."""
    sizes = [report.batch_size for report in reports if report.batch_size is not None]
    rows = [row for report in reports for row in report.batches or ()]
    if not sizes or not rows:
        return None
    minutes = WINDOW_SECONDS / POLL_SECONDS
    sums: dict[int, tuple[float, float, float]] = {}
    for row in rows:
        batches, requests, seconds = sums.get(row.max_size, (0.0, 0.0, 0.0))
        sums[row.max_size] = (
            batches + row.batches / minutes,
            requests + row.requests / minutes,
            seconds + row.seconds / minutes,
        )
    waiting = sum(row.waiting for row in rows)
    is_rare = waiting <= LATE_SHARE * sum(row.requests for row in rows)
    waited = 0.0 if is_rare else sum(row.waiting * row.seconds / row.batches for row in rows) / waiting
    return BatchesDone(sums, max(sizes), waited)


def _work_done(
    now: float, oldest_seconds: float, ready: Mapping[str, Sequence[Worker]], throughput: Throughput
) -> Iterator[tuple[str, WorkDone]]:
    """Yield the completed work of the last minute by instance type.

    If the oldest request has waited for `SATURATED_SECONDS`, all workers were busy and their rate is their
    capacity. Else the workers that report their busy share count.
    """
    for name, workers in ready.items():
        reports = _fresh_reports(now, workers)
        busy_shares = [(report.rate, report.busy) for report in reports if report.busy is not None]
        if busy_shares and oldest_seconds < SATURATED_SECONDS:
            work = _sum_work(busy_shares)
        else:
            work = _estimate_work(reports, oldest_seconds, throughput.rate_of(name))
        if work.requests > 0 and work.busy_seconds > 0:
            yield name, work


def _estimate_work(
    reports: Sequence[WorkerReport], oldest_seconds: float, known_rate: float | None
) -> WorkDone:
    """Estimate the work of workers that report their rate, but not their busy share.

    Their capacity is at least ``known_rate``, measured before; without it, the GPU utilization is the first
    estimate of the busy share.
    """
    if known_rate is None and oldest_seconds < POLL_SECONDS:
        shares = (
            (report.rate, report.gpu_use)
            for report in reports
            if report.gpu_use is not None and report.gpu_use >= _MIN_GPU_USE_PERCENT
        )
        return _sum_work([(rate, percent / 100) for rate, percent in shares])
    work = _sum_work([(report.rate, 1.0) for report in reports])
    if known_rate is not None and oldest_seconds < SATURATED_SECONDS:
        return WorkDone(work.requests, min(work.busy_seconds, work.requests / known_rate))
    return work


def _sum_work(pairs: Iterable[tuple[float, float]]) -> WorkDone:
    """Return the work of one minute from pairs of rate and busy share."""
    values = tuple(pairs)
    return WorkDone(
        POLL_SECONDS * sum(rate for rate, _ in values), POLL_SECONDS * sum(share for _, share in values)
    )


def workers_for_queue(state: QueueState, queued_per_worker: int) -> int:
    """Return the workers that a queue needs, at one for each ``queued_per_worker`` requests.

    Never fewer than the workers in work and those for the requests that wait. A worker is in work if it has a
    request; a broker does not say how many have one, but not more than there are requests in flight, or
    consumers; on SQS each request in flight counts as a consumer.
    """
    in_work = state.in_flight if state.consumers is None else min(state.in_flight, state.consumers)
    return max(
        in_work + _divided(state.ready, queued_per_worker),
        _divided(state.ready + state.in_flight, queued_per_worker),
    )


def _divided(requests: int, per_worker: int) -> int:
    """Divide and round up."""
    return -(-requests // per_worker)
