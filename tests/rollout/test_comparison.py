"""A candidate in comparison with the release before it: outages, gaps, speeds, the stored state."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from contracts import codec
from contracts.registry.batches import BatchRow
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.model import WorkerHost
from lambdas.core.rollout.comparison import (
    MAX_HOLD_SECONDS,
    MAX_OUTAGE_SECONDS,
    OUTAGE_SECONDS,
    ComparedWorkers,
    Comparison,
    update,
)

START = 1_767_571_200.0
G5 = "g5.xlarge"


@dataclass
class Side:
    """Workers of one release with cumulative counters; ``seconds`` is the duration of a request."""

    name: str
    count: int
    since: float = START
    instance_type: str = G5
    seconds: float | None = 1.0
    per_minute: int = 30
    share: float = 0.0
    done: int = 0
    failed: int = 0
    starts: int = 1
    memory: Callable[[int], int] | None = None
    """MiB of 10,000 by minute."""
    gpu_memory: Callable[[int], float] | None = None
    """Percent by minute."""
    minutes: int = 0

    def minute(self) -> None:
        self.minutes += 1
        self.done += self.per_minute
        self.failed += round(self.share * self.per_minute)

    def workers(self, now: float) -> ComparedWorkers:
        rows = None
        if self.seconds is not None:
            requests = 5 * self.per_minute
            rows = (BatchRow(1, requests, requests, requests * self.seconds),) if requests else ()
        report = WorkerReport(
            self.name,
            reported_at=now - 5,
            done=self.done,
            failed=self.failed,
            starts=self.starts,
            batches=rows,
            memory=None if self.memory is None else self.memory(self.minutes),
            memory_limit=None if self.memory is None else 10_000,
            gpu_memory=None if self.gpu_memory is None else self.gpu_memory(self.minutes),
        )
        names = [f"{self.name}-{number}" for number in range(self.count)]
        return [
            (
                WorkerHost(name, launched_at=START, instance_type=self.instance_type),
                Worker("ocr", name, 0, self.since, now - 5, "ready", report=report),
            )
            for name in names
        ]


@dataclass
class Passes:
    """Passes of the health checker over two sides, a minute apart."""

    new: Side
    old: Side
    comparison: Comparison = field(default_factory=Comparison)
    now: float = START

    def run(self, minutes: int) -> Comparison:
        for _ in range(minutes):
            self.now += 60
            for side in (self.new, self.old):
                side.minute()
            self.look(self.new.workers(self.now), self.old.workers(self.now))
        return self.comparison

    def look(self, new: ComparedWorkers, old: ComparedWorkers) -> None:
        text = json.dumps(codec.dump(self.comparison))
        self.comparison = update(codec.parse_text(Comparison, text), new, old, self.now)

    @property
    def reason(self) -> str:
        return self.comparison.rejection_reason(self.now)


def passes(new: Side | None = None, old: Side | None = None) -> Passes:
    return Passes(
        new or Side("new", 1), old or Side("old", 5, since=START - 7200, done=100_000, failed=50_000)
    )


def test_a_release_as_good_as_the_other_is_accepted_and_what_failed_before_does_not_count() -> None:
    played = passes()
    played.run(25)
    assert played.comparison.is_accepted
    assert not played.reason
    assert played.comparison.requests.old_failed == 0


def with_memory(new: Callable[[int], int] | None = None, gpu: Callable[[int], float] | None = None) -> Passes:
    old = Side("old", 5, since=START - 7200, done=100_000)
    old.memory, old.gpu_memory = lambda _: 5000, lambda _: 50.0
    return passes(Side("new", 2, memory=new, gpu_memory=gpu), old)


def test_a_leak_is_a_reason_with_the_evidence_and_keeps_the_candidate_from_the_others() -> None:
    played = with_memory(lambda minute: 5000 + 80 * minute)
    played.run(28)
    assert played.reason.startswith(
        "its workers' memory has grown by 16.8% of the memory that a worker may use in 21 minutes, to 72%"
    )
    assert not played.comparison.is_accepted


def test_a_higher_level_of_memory_is_accepted_once_it_is_seen_not_to_grow() -> None:
    played = with_memory(lambda _: 8000)
    without = passes()
    while not without.run(1).is_accepted:
        assert not played.run(1).is_accepted
    played.run(25)
    assert played.comparison.is_accepted
    assert not played.reason


def test_memory_that_only_the_others_report_delays_and_that_no_worker_reports_does_not() -> None:
    played = with_memory(None)
    assert not played.run(50).is_accepted
    assert not played.reason
    assert played.comparison.has_expired(START + MAX_HOLD_SECONDS + 120)
    assert passes().run(25).is_accepted


def test_gpu_memory_that_grows_is_a_reason_and_a_full_gpu_is_not() -> None:
    growing = with_memory(lambda _: 5000, lambda minute: 50 + 0.8 * minute)
    growing.run(28)
    assert "of the GPU's memory in" in growing.reason
    full = with_memory(lambda _: 5000, lambda _: 99.0)
    full.run(40)
    assert full.comparison.is_accepted
    assert not full.reason


def test_a_rejection_names_the_evidence() -> None:
    played = passes(Side("new", 1, share=0.5))
    played.run(4)
    assert played.reason == (
        "60 of its 120 requests failed (50.0%), and 0 of the 450 that other instances ended "
        "in the same minutes (0.0%)"
    )


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_dependency_that_fails_all_requests_holds_the_rollout_and_rejects_nothing(share: float) -> None:
    played = passes()
    played.run(3)
    played.new.share = played.old.share = share
    played.run(12)
    assert played.comparison.is_outage(played.now)
    assert not played.reason
    assert not played.comparison.is_accepted
    assert not played.comparison.has_expired(played.now)
    played.new.share = played.old.share = 0.0
    played.run(int(OUTAGE_SECONDS // 60))
    assert not played.comparison.is_outage(played.now)
    played.run(25)
    assert played.comparison.is_accepted


def test_an_outage_that_does_not_end_becomes_the_usual_state_and_a_worse_release_is_rejected() -> None:
    played = passes(Side("new", 1, share=0.9), Side("old", 5, share=0.5))
    played.run(int(MAX_OUTAGE_SECONDS // 60) - 2)
    assert played.comparison.is_outage(played.now)
    assert not played.reason
    played.run(10)
    assert played.reason


def test_the_fix_of_a_release_that_fails_is_not_held() -> None:
    played = passes(Side("new", 1, share=0.0), Side("old", 5, share=0.9))
    played.run(20)
    assert played.comparison.is_accepted


def test_minutes_without_a_worker_of_the_candidate_do_not_count() -> None:
    played = passes(old=Side("old", 5, share=0.2))
    for _ in range(30):
        played.now += 60
        played.old.minute()
        played.look((), played.old.workers(played.now))
    assert (played.comparison.total, played.comparison.window) == ((0, 0, 0, 0), (0, 0, 0, 0))
    assert not played.comparison.began_at


def test_counters_that_jump_after_a_gap_reject_no_candidate() -> None:
    played = passes()
    played.run(5)
    played.now += 600  # its item was not readable, and the health checker did not run
    played.new.done += 1000
    played.new.failed += 1000
    played.old.done += 1000
    played.look(played.new.workers(played.now), played.old.workers(played.now))
    assert played.comparison.requests.new_failed == 0
    assert played.comparison.window[:2] == (0, 0)


def test_a_restarted_worker_counts_from_its_start() -> None:
    played = passes()
    played.run(5)
    before = played.comparison.requests.new
    played.new.done = played.new.failed = 0
    played.new.since = played.now + 30
    played.new.starts += 1
    played.run(1)
    assert played.comparison.requests.new - before == 30
    assert played.comparison.starts == (1, 0)


@pytest.mark.parametrize(("old_starts", "is_usual"), [(0, False), (1, False), (5, True)])
def test_crashes_are_usual_if_the_other_workers_crash_half_as_often(old_starts: int, is_usual: bool) -> None:
    played = passes(old=Side("old", 4))
    played.run(10)
    for side, starts in ((played.new, 3), (played.old, old_starts)):
        side.starts += starts
    played.run(1)
    assert played.comparison.is_usual_crash_rate() is is_usual


def test_a_slower_release_is_rejected_with_its_slowdown() -> None:
    played = passes(Side("new", 1, seconds=1.5))
    played.run(25)
    assert "1.50 times as long for a request" in played.reason


def test_the_first_minutes_of_a_process_are_not_compared() -> None:
    played = passes(Side("new", 1, seconds=9.0))
    played.run(5)
    assert played.comparison.slowdown == (0.0, 0.0)


@pytest.mark.parametrize("seconds", [1.5, 0.7])
def test_another_instance_type_is_no_measure(seconds: float) -> None:
    played = passes(Side("new", 1, seconds=seconds, instance_type="g4dn.xlarge"))
    played.run(30)
    assert not played.reason
    assert not played.comparison.is_accepted
    played.run(int(MAX_HOLD_SECONDS // 60) - 29)
    assert played.comparison.has_expired(played.now)  # goes on, as its failures are known
    assert not played.reason


def test_workers_that_report_no_batches_are_judged_by_failures_alone() -> None:
    played = passes(Side("new", 1, seconds=None), Side("old", 5, seconds=None))
    assert played.run(20).is_accepted
    played = passes(Side("new", 1, seconds=None))
    assert not played.run(20).is_accepted


def test_the_candidate_is_not_accepted_without_workers_to_compare_with() -> None:
    played = passes(old=Side("old", 5, seconds=None))
    played.run(3)
    played.old.count = 0
    assert not played.run(30).is_accepted


@pytest.mark.parametrize(("share", "is_rejected"), [(0.0, False), (0.2, True)])
def test_after_an_hour_with_few_requests_the_estimate_decides(share: float, is_rejected: bool) -> None:
    new, old = Side("new", 1, seconds=None, per_minute=0), Side("old", 5, seconds=None, per_minute=0)
    played = passes(new, old)
    for minute in range(int(MAX_HOLD_SECONDS // 60)):
        new.per_minute = old.per_minute = 5 if minute % 15 == 0 else 0
        new.share = share
        played.run(1)
        assert not played.reason
    played.run(2)
    assert not played.comparison.is_accepted
    assert bool(played.reason) is is_rejected


def test_the_stored_state_of_many_workers_is_bounded() -> None:
    played = passes(Side("i-0123456789abcdef0", 1000), Side("i-0123456789abcdef1", 4000))
    played.run(3)
    assert len(json.dumps(codec.dump(played.comparison))) < 60_000


def test_a_worker_with_a_faulty_counter_neither_accepts_nor_rejects_alone() -> None:
    played = passes()
    played.run(3)

    def lie(workers: ComparedWorkers) -> Sequence[tuple[WorkerHost, Worker]]:
        (host, worker), *others = workers
        assert worker.report is not None
        false = replace(worker.report, done=10**15, failed=9 * 10**14)
        return [(host, replace(worker, report=false)), *others]

    played.now += 60
    played.new.minute()
    played.old.minute()
    played.look(played.new.workers(played.now), lie(played.old.workers(played.now)))
    assert played.comparison.requests.old_failed <= played.comparison.requests.old / 2
    assert not played.comparison.is_accepted
