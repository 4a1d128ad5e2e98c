"""Differences of workers' counters: restarts, missing and faulty reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.core.rollout.counters import (
    MAX_GAP_SECONDS,
    CountDifference,
    WorkerCounters,
    difference,
    read_counters,
    total_requests,
)

BEFORE = WorkerCounters(since=1000.0, at=2000.0, done=500, failed=20, starts=3)


def test_the_difference_of_one_process_is_what_it_did_in_between() -> None:
    after = replace(BEFORE, at=2060.0, done=530, failed=21)
    assert difference(BEFORE, after) == CountDifference(30, 1)
    assert difference(BEFORE, BEFORE) == CountDifference()


@pytest.mark.parametrize(
    "changes", [{"since": 2030.0}, {"since": 2030.0, "done": 600}, {"since": 2030.0, "starts": 4}]
)
def test_a_process_that_has_started_since_counts_from_zero(changes: dict[str, int]) -> None:
    after = replace(BEFORE, **{"at": 2060.0, "done": 12, "failed": 2, **changes})  # type: ignore[arg-type]
    change = difference(BEFORE, after)
    assert change is not None
    assert (change.done, change.failed) == (after.done, after.failed)
    assert change.starts == after.starts - BEFORE.starts


def test_counters_that_went_back_without_a_start_are_unknown() -> None:
    assert difference(BEFORE, replace(BEFORE, at=2060.0, done=400)) is None
    assert difference(BEFORE, replace(BEFORE, at=2060.0, failed=19)) is None


def test_a_gap_is_unknown_and_a_start_within_it_is_still_counted() -> None:
    late = BEFORE.at + MAX_GAP_SECONDS + 1
    assert difference(BEFORE, replace(BEFORE, at=late, done=900)) is None
    crashed = replace(BEFORE, since=BEFORE.at + 1, at=late + 5, done=9, failed=0, starts=5)
    assert difference(BEFORE, crashed) == CountDifference(starts=2)
    assert difference(BEFORE, replace(BEFORE, at=1990.0)) is None


def test_more_failed_than_ended_requests_are_unknown() -> None:
    assert difference(BEFORE, replace(BEFORE, at=2060.0, done=501, failed=25)) is None


def test_a_worker_without_reports_has_no_counters() -> None:
    worker = Worker("ocr", "i-1", 0, 1000.0, 2000.0)
    assert read_counters(worker) is None
    assert read_counters(replace(worker, report=WorkerReport("v1"))) is None
    assert read_counters(replace(worker, report=WorkerReport("v1", reported_at=1990.0, done=5))) is not None


def test_a_faulty_counter_does_not_outweigh_the_other_workers() -> None:
    usual = [CountDifference(30, 0)] * 4
    done, failed = total_requests([*usual, CountDifference(10**15, 10**15)])
    assert (done, failed) == (4 * 30 + 90, 90)
    assert total_requests([CountDifference(), CountDifference(starts=1)]) == (0, 0)
