"""Differences of workers' counters between two passes: requests ended and failed, and starts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts.registry.item import Worker
from contracts.stored import stored

MAX_GAP_SECONDS: Final = 180.0
"""Longest time between two reports whose difference counts: longer ones are not of the same minutes."""
MAX_WEIGHT: Final = 3
"""A worker counts at most as this many medians of its side: a faulty counter does not decide alone."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """A worker's counters at its report: ``done`` and ``failed`` since its start at ``since``."""

    since: float
    at: float
    done: int
    failed: int
    starts: int


@dataclass(frozen=True, slots=True)
class CountDifference:
    """What a worker did between two reports."""

    done: int = 0
    failed: int = 0
    starts: int = 0


def read_counters(worker: Worker) -> WorkerCounters | None:
    """Return a worker's counters; None if it does not report its progress."""
    report = worker.report
    if report is None or report.reported_at <= 0:
        return None
    return WorkerCounters(worker.since, report.reported_at, report.done, report.failed, report.starts)


def difference(before: WorkerCounters | None, after: WorkerCounters) -> CountDifference | None:
    """Return what a worker did since its last counters; None if that is unknown.

    A process that started in the meantime has counted from 0.
    """
    starts = max(0, after.starts - before.starts) if before is not None else 0
    is_same_process = (
        before is not None
        and before.since == after.since
        and not starts
        and before.done <= after.done
        and before.failed <= after.failed
    )
    if before is None or not is_same_process:
        before = WorkerCounters(after.since, after.since, 0, 0, after.starts)
    done, failed = after.done - before.done, after.failed - before.failed
    if not 0 <= after.at - before.at <= MAX_GAP_SECONDS or failed > done:
        return None if not starts else CountDifference(starts=starts)
    return CountDifference(done, failed, starts)


def total_requests(differences: Iterable[CountDifference]) -> tuple[int, int]:
    """Return how many requests were ended and failed, with no worker above `MAX_WEIGHT` medians."""
    working = [change for change in differences if change.done]
    if not working:
        return 0, 0
    limit = max(1, int(MAX_WEIGHT * statistics.median(change.done for change in working)))
    done = failed = 0
    for change in working:
        counted = min(change.done, limit)
        done += counted
        failed += round(change.failed * counted / change.done)
    return done, failed
