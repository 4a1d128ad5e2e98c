"""A candidate in comparison with the release before it: shares of failures, outages, gaps, restarts."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import codec
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.core.rollout.comparison import (
    MARGIN,
    MAX_HOLD_SECONDS,
    MAX_OUTAGE_SECONDS,
    MIN_WORSE_WINDOWS,
    Comparison,
    Paired,
    update,
)

START = 1_767_571_200.0


@dataclass
class Side:
    name: str
    count: int
    since: float = START
    per_minute: int = 30
    share: float = 0.0
    done: int = 0
    failed: int = 0
    starts: int = 1

    def minute(self) -> None:
        self.done += self.per_minute
        self.failed += round(self.share * self.per_minute)

    def workers(self, now: float) -> list[Worker]:
        report = WorkerReport(
            self.name, reported_at=now - 5, done=self.done, failed=self.failed, starts=self.starts
        )
        names = [f"{self.name}-{number}" for number in range(self.count)]
        return [Worker("ocr", name, 0, self.since, now - 5, "ready", report=report) for name in names]


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

    def look(self, new: list[Worker], old: list[Worker]) -> None:
        text = json.dumps(codec.dump(self.comparison))
        self.comparison = update(codec.parse_text(Comparison, text), new, old, self.now)

    @property
    def is_bad(self) -> bool:
        return self.comparison.is_bad(self.now)


def passes(new: Side | None = None, old: Side | None = None) -> Passes:
    return Passes(
        new or Side("new", 1), old or Side("old", 5, since=START - 7200, done=100_000, failed=50_000)
    )


def test_a_release_as_good_as_the_other_is_accepted_and_what_failed_before_does_not_count() -> None:
    played = passes()
    played.run(25)
    assert played.comparison.is_good()
    assert not played.is_bad
    assert played.comparison.total.old_failed == 0


def test_a_rejection_names_the_evidence() -> None:
    played = passes(Side("new", 1, share=0.5))
    played.run(4)
    assert played.is_bad
    assert played.comparison.describe() == (
        "60 of its 120 requests failed (50.0%), and 0 of the 450 that other instances ended "
        "in the same minutes (0.0%)"
    )


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_dependency_that_fails_all_requests_holds_the_rollout_and_rejects_nothing(share: float) -> None:
    played = passes()
    played.run(3)
    played.new.share = played.old.share = share
    played.run(12)
    assert played.comparison.is_outage
    assert not played.is_bad
    assert not played.comparison.is_good()
    assert not played.comparison.has_expired(played.now)
    played.new.share = played.old.share = 0.0
    played.run(1)
    assert not played.comparison.is_outage
    played.run(25)
    assert played.comparison.is_good()


def test_an_outage_that_does_not_end_becomes_the_usual_state_and_a_worse_release_is_rejected() -> None:
    played = passes(Side("new", 1, share=0.9), Side("old", 5, share=0.5))
    played.run(int(MAX_OUTAGE_SECONDS // 60) - 2)
    assert played.comparison.is_outage
    assert not played.is_bad
    played.run(10)
    assert played.is_bad


def test_the_fix_of_a_release_that_fails_is_not_held() -> None:
    played = passes(Side("new", 1, share=0.0), Side("old", 5, share=0.9))
    played.run(20)
    assert played.comparison.is_good()


def test_minutes_without_a_worker_of_the_candidate_do_not_count() -> None:
    played = passes(old=Side("old", 5, share=0.2))
    for _ in range(30):
        played.now += 60
        played.old.minute()
        played.look([], played.old.workers(played.now))
    assert (played.comparison.total, played.comparison.window) == (Paired(), Paired())
    assert not played.comparison.began_at


def test_counters_that_jump_after_a_gap_reject_no_candidate() -> None:
    played = passes()
    played.run(5)
    played.now += 600  # its item was not readable, and the health checker did not run
    played.new.done += 1000
    played.new.failed += 1000
    played.old.done += 1000
    played.look(played.new.workers(played.now), played.old.workers(played.now))
    assert played.comparison.total.new_failed == 0
    assert played.comparison.window.new == 0


@pytest.mark.parametrize("starts", [0, 1])
def test_a_restarted_worker_counts_from_its_start(starts: int) -> None:
    played = passes()
    played.run(5)
    before = played.comparison.total.new
    played.new.done = played.new.failed = 0
    played.new.since = played.now + 30
    played.new.starts += starts
    played.run(1)
    assert played.comparison.total.new - before == 30
    assert (played.comparison.crashes.new_failed, played.comparison.crashes.old_failed) == (starts, 0)


@pytest.mark.parametrize(("old_starts", "is_usual"), [(0, False), (1, False), (5, True)])
def test_crashes_are_usual_if_the_other_workers_crash_half_as_often(old_starts: int, is_usual: bool) -> None:
    played = passes(old=Side("old", 4))
    played.run(10)
    for side, starts in ((played.new, 3), (played.old, old_starts)):
        side.starts += starts
    played.run(1)
    assert played.comparison.is_usual_crash_rate() is is_usual


def test_the_candidate_is_not_accepted_without_workers_to_compare_with() -> None:
    played = passes()
    played.run(3)
    played.old.count = 0
    played.run(30)
    assert not played.comparison.is_good()


@pytest.mark.parametrize(("share", "is_rejected"), [(0.0, False), (0.2, True)])
def test_after_an_hour_with_few_requests_the_estimate_decides(share: float, is_rejected: bool) -> None:
    new, old = Side("new", 1, per_minute=0), Side("old", 5, per_minute=0)
    played = passes(new, old)
    for minute in range(int(MAX_HOLD_SECONDS // 60)):
        new.per_minute = old.per_minute = 5 if minute % 15 == 0 else 0
        new.share = share
        played.run(1)
        assert not played.is_bad
    played.run(2)
    assert not played.comparison.is_good()
    assert played.comparison.has_expired(played.now)
    assert played.is_bad is is_rejected


def test_the_stored_state_of_many_workers_is_bounded() -> None:
    played = passes(Side("i-0123456789abcdef0", 1000), Side("i-0123456789abcdef1", 4000))
    played.run(3)
    assert len(json.dumps(codec.dump(played.comparison))) < 60_000


def test_a_worker_with_a_faulty_counter_neither_accepts_nor_rejects_alone() -> None:
    def lie(workers: list[Worker]) -> list[Worker]:
        worker, *others = workers
        assert worker.report is not None
        false = replace(worker.report, done=10**15, failed=9 * 10**14)
        return [replace(worker, report=false), *others]

    played = passes(Side("new", 1, share=0.1))
    played.run(3)
    played.now += 60
    played.new.minute()
    played.old.minute()
    played.look(played.new.workers(played.now), lie(played.old.workers(played.now)))
    assert 0 < played.comparison.total.old_failed <= played.comparison.total.old / 2
    while not played.is_bad:
        assert not played.comparison.is_good()
        played.run(1)
        assert played.now - START < MAX_HOLD_SECONDS


def test_no_single_incident_rejects_a_candidate() -> None:
    played = passes()
    played.run(20)
    for _ in range(MIN_WORSE_WINDOWS):
        assert not played.is_bad
        played.new.share = 1.0
        played.run(1)
        played.new.share = 0.0
        played.run(1)
    assert played.is_bad


def decided(total: Paired, worse: int = MIN_WORSE_WINDOWS, minutes: float = 5) -> tuple[bool, bool]:
    compared = Comparison(began_at=START, total=total, worse_windows=worse)
    return compared.is_good(), compared.is_bad(START + 60 * minutes)


COUNTS = st.integers(0, 5000)


@st.composite
def totals(draw: st.DrawFn) -> Paired:
    new, old = draw(COUNTS), draw(COUNTS)
    return Paired(new, draw(st.integers(0, new)), old, draw(st.integers(0, old)))


@given(totals(), st.integers(0, 9), st.sampled_from((5.0, 59.0, 61.0, 600.0)))
def test_a_candidate_is_never_both_and_without_requests_of_both_sides_neither(
    total: Paired, worse: int, minutes: float
) -> None:
    good, bad = decided(total, worse, minutes)
    assert not (good and bad)
    if min(total.new, total.old) < 10:
        assert not good
        assert not bad
    if bad:
        assert total.shares[0] > total.shares[1]
        assert minutes > 60 or worse >= MIN_WORSE_WINDOWS
    if good:
        assert total.shares[0] - total.shares[1] < 2 * MARGIN


@given(totals(), st.integers(1, 500))
def test_more_failures_of_the_candidate_never_help_it_and_more_of_the_others_never_harm_it(
    total: Paired, more: int
) -> None:
    worse = replace(total, new_failed=min(total.new, total.new_failed + more))
    better = replace(total, old_failed=min(total.old, total.old_failed + more))
    for errors in (0.0, -1.0):
        assert worse.difference(errors) >= total.difference(errors) or total.new < 40
        assert better.difference(errors) <= total.difference(errors) or total.old < 40


@given(st.floats(0.0, 0.2), st.integers(0, 10**6))
def test_a_release_as_good_as_the_other_is_hardly_ever_bad_however_often_it_is_looked_at(
    share: float, seed: int
) -> None:
    chance = random.Random(seed)
    played = Paired()
    for minute in range(58):
        failed = [sum(chance.random() < share for _ in range(30)) for _ in range(4)]
        played = played + Paired(30, failed[0], 90, sum(failed[1:]))
        assert not decided(played, minute)[1]


@pytest.mark.parametrize("requests", [12, 100, 1000])
def test_a_release_that_fails_everything_is_bad_and_one_that_fails_nothing_more_is_not(requests: int) -> None:
    assert decided(Paired(requests, requests, 5 * requests, 0)) == (False, True)
    assert not decided(Paired(requests, 0, 5 * requests, 0))[1]
    assert decided(Paired(1000, 10, 5000, 50)) == (True, False)
    assert decided(Paired(1000, 60, 5000, 50)) == (False, True)


@pytest.mark.parametrize(
    "report",
    [
        {"done": 5, "failed": 0},  # went back without a start
        {"done": 140, "failed": 60},  # more failed than ended
        {"reported_at": 0.0, "done": 150},  # not reported
    ],
)
def test_counters_that_cannot_be_count_nothing(report: dict[str, float]) -> None:
    played = passes()
    played.run(4)
    before = played.comparison.total.new + played.comparison.window.new
    assert before > 0
    [worker] = played.new.workers(played.now + 60)
    assert worker.report is not None
    wrong = replace(worker, report=replace(worker.report, **report))  # type: ignore[arg-type]
    played.now += 60
    played.look([wrong], played.old.workers(played.now))
    assert played.comparison.total.new + played.comparison.window.new == before
