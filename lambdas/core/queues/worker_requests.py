"""Reports of HTTP workers, which report no requests themselves: filled from their proxies' counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from contracts.registry.batches import MAX_ROWS, BatchRow
from contracts.registry.http_state import HttpState, WorkerTraffic
from contracts.registry.item import Worker

_MAX_SIZE: Final = 2 ** (MAX_ROWS - 1)


def with_requests(
    workers: Mapping[str, Iterable[Worker]], state: HttpState, concurrency: int
) -> dict[str, list[Worker]]:
    """Return workers by host, each with its requests at the proxies if it reports none.

    A worker that is not checked at any proxy ends none. While a proxy cannot be read, that is unknown, and so
    are shares of time and of failed requests.

    Args:
        workers: registered workers by host.
        state: the requests at the proxies.
        concurrency: requests at one worker at once.
    """
    traffic = {(row.instance, row.slot): row for row in state.workers}
    return {
        host: [
            _filled(worker, traffic.get((worker.instance, worker.slot)), state, concurrency)
            for worker in members
        ]
        for host, members in workers.items()
    }


def _filled(worker: Worker, traffic: WorkerTraffic | None, state: HttpState, concurrency: int) -> Worker:
    report = worker.report
    if report is None or report.reported_at > 0:
        return worker
    if traffic is None or traffic.since != worker.since:
        if state.unreadable:
            return worker
        traffic = WorkerTraffic(worker.instance, worker.slot, worker.since, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    is_known = not state.unreadable and traffic.seconds > 0
    report = replace(
        report,
        reported_at=state.observed_at,
        done=traffic.done,
        failed=traffic.failed,
        rate=traffic.rate,
        busy=traffic.busy if is_known else None,
        failed_rate=traffic.failed_rate if is_known else None,
        batches=batches(traffic) if is_known else (),
        batch_size=concurrency,
    )
    return replace(worker, report=report)


def batches(traffic: WorkerTraffic) -> tuple[BatchRow, ...]:
    """Return the requests of the last minutes as batches of the mean number that was at the worker at once.

    A server that batches by itself has b requests while it is busy, and each takes t(b) seconds: by Little's
    law it ends b of them every t(b) seconds, as a worker does with batches of b.
    """
    requests = round(traffic.rate * traffic.seconds)
    if not requests or not traffic.busy:
        return ()
    seconds = requests * traffic.busy / traffic.rate
    at_once = max(1.0, traffic.in_flight / traffic.busy)
    count = min(requests, max(1, round(requests / at_once)))
    max_size = min(_MAX_SIZE, 1 << (math.ceil(min(at_once, _MAX_SIZE)) - 1).bit_length())
    return (BatchRow(max_size, count, requests, round(seconds, 3)),)
