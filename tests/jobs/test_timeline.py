"""The timeline of a run: endings, moves, lost work, downtime and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from gpu_spot.jobs.report import timeline_of
from tests.jobs.snapshots import NOW, RUN, job, job_attempt, row
from userdata.agent.cost.prices import Charge, PriceBook
from userdata.agent.cost.timeline import Ending

PRICES = PriceBook(lambda kind: {"g6.xlarge": 0.8}.get(kind), {("g6.xlarge", "us-west-2a"): [(0.0, 0.36)]})


def test_a_run_through_every_ending() -> None:
    announced = job_attempt(
        1, "i-1", 5000, 4000, notice_at=NOW - 4010, cause="spot", ended=NOW - 3995, end="stopped"
    )
    handed = job_attempt(
        2, "i-2", 3800, 3000, zone="us-west-2b", notice_at=NOW - 3010, cause="lifecycle", ended=NOW - 2999,
        end="stopped", resumed=NOW - 4000,
    )  # fmt: skip
    lost = job_attempt(3, "i-3", 2900, 2000, stopped=0.0, zone="us-west-2b", resumed=NOW - 3000)
    broken = job_attempt(4, "i-4", 1500, 1000, ended=NOW - 999, end="host", resumed=NOW - 2300)
    running = job_attempt(5, "i-5", 600, 5, stopped=0.0, resumed=NOW - 1200)
    timeline = timeline_of(job(row=row(token=5), attempts=(running, lost, announced, broken, handed)), PRICES)
    assert [one.ending for one in timeline.attempts] == [
        "notice",
        "hand-over",
        "loss",
        "host fault",
        "goes on",
    ]
    # Nothing where it was saved, 300 s without notice, 200 s of the host that broke.
    assert [one.lost_seconds for one in timeline.attempts] == [0, 0, 300, 200, 0]
    assert [one.away_seconds for one in timeline.attempts] == [200, 100, 500, 400, None]
    assert (timeline.interruptions, timeline.moves) == (3, 2)
    assert timeline.worked_seconds == 1000 + 800 + 900 + 500 + 595
    assert (timeline.lost_seconds, timeline.away_seconds, timeline.is_cut) == (500, 1200, False)


def test_without_a_checkpoint_all_of_it_is_lost() -> None:
    first = job_attempt(1, "i-1", 1000, 400, stopped=0.0, checkpoint=0.0)
    second = job_attempt(2, "i-2", 100, 5, stopped=0.0)
    assert timeline_of(job(attempts=(first, second)), PRICES).attempts[0].lost_seconds == 600


def test_an_attempt_that_never_started_hides_no_loss() -> None:
    first = job_attempt(1, "i-1", 1000, 500, stopped=0.0)
    between = job_attempt(2, "i-2", 400, 350, started=0.0, starts=0, stopped=0.0)
    third = job_attempt(3, "i-3", 200, 5, stopped=0.0, resumed=NOW - 620)
    attempts = timeline_of(job(attempts=(first, between, third)), PRICES).attempts
    assert [(one.lost_seconds, one.away_seconds) for one in attempts] == [(120, 300), (0, None), (0, None)]
    assert (attempts[1].ending, attempts[1].worked_seconds) == ("loss", 0.0)


def test_restarts_on_one_instance_are_one_attempt() -> None:
    nothing_yet = job_attempt(1, "i-1", 1000, 950, started=0.0, starts=0, stopped=0.0)
    first = job_attempt(2, "i-1", 900, 600, lost=7.0)
    again = job_attempt(3, "i-1", 500, 5, stopped=0.0, starts=2, resumed=NOW - 650, lost=5.0)
    [summary] = timeline_of(job(attempts=(nothing_yet, first, again)), PRICES).attempts
    assert (summary.started, summary.ended_at, summary.attempt.starts) == (NOW - 900, NOW - 5, 3)
    assert summary.lost_seconds == 7 + 50 + 5
    assert summary.launched == nothing_yet.launched


@pytest.mark.parametrize(
    ("part", "finished", "ending"),
    [
        (job_attempt(1, "i-1", 900, 300, ended=NOW - 299, end="done"), RUN, "done"),
        (job_attempt(1, "i-1", 900, 300, ended=NOW - 299, end="failed"), RUN, "failed"),
        (
            job_attempt(1, "i-1", 900, 300, ended=NOW - 299, notice_at=NOW - 310, cause="lifecycle"),
            RUN,
            "stopped",
        ),
        (job_attempt(1, "i-1", 900, 300, ended=NOW - 299, end="stopped"), "none", "hand-over"),
        (job_attempt(1, "i-1", 900, 100, stopped=0.0), "none", "goes on"),
        (job_attempt(1, "i-1", 900, 300, stopped=0.0), "none", "loss"),
    ],
)  # fmt: skip
def test_ending_of_the_last_attempt(part: JobAttempt, finished: str, ending: Ending) -> None:
    [one] = timeline_of(job(finished=finished, attempts=(part,)), PRICES).attempts
    assert one.ending == ending


def test_a_timeline_has_one_revision_and_says_if_it_is_cut() -> None:
    old = job_attempt(1, "i-1", 900, 800, revision="b" * 40)
    new = job_attempt(2, "i-2", 700, 5, stopped=0.0)
    timeline = timeline_of(job(row=row(token=2), attempts=(old, new)), PRICES)
    assert ([one.attempt.instance for one in timeline.attempts], timeline.is_cut) == (["i-2"], False)
    many = [replace(new, token=token) for token in range(6, 6 + ATTEMPTS_RETAINED)]
    assert timeline_of(job(row=row(token=5 + ATTEMPTS_RETAINED), attempts=tuple(many)), PRICES).is_cut
    assert not timeline_of(job(row=row(token=5 + ATTEMPTS_RETAINED), attempts=tuple(many[1:])), PRICES).is_cut


def test_cost_follows_the_spot_price_and_excludes_unknown_prices() -> None:
    begin, end = NOW - 7200, NOW
    spot = replace(job_attempt(1, "i-1", 7000, 0), purchase_option="spot")
    book = PriceBook(
        lambda kind: {"g6.xlarge": 0.8}.get(kind),
        {("g6.xlarge", "us-west-2a"): [(NOW - 3600, 0.5), (NOW - 9000, 0.2), (NOW - 1800, 1.0)]},
    )
    charge = book.charge(spot, begin, end)
    assert charge.dollars == pytest.approx(0.2 * 1 + 0.5 * 0.5 + 1.0 * 0.5)
    assert (charge.list_dollars, charge.assumed_seconds) == (pytest.approx(1.6), 0.0)
    before = book.charge(spot, NOW - 12600, NOW - 5400)  # the first price is of an hour later
    assert (before.dollars, before.assumed_seconds) == (pytest.approx(0.8 + 0.2), 3600.0)
    assert book.charge(replace(spot, purchase_option="on-demand"), begin, end).dollars == pytest.approx(1.6)
    assert book.charge(spot, end, begin) == Charge()
    in_zone_b = book.charge(replace(spot, zone="us-west-2b"), begin, end)
    assert (in_zone_b.dollars, in_zone_b.assumed_seconds) == (pytest.approx(1.6), 7200.0)
    new = replace(spot, purchase_option="on-demand", instance_type="p9")
    assert book.charge(new, begin, end).unpriced_seconds == 7200.0
    timeline = timeline_of(job(attempts=(replace(new, launched=NOW - 1200),)), book)
    assert (timeline.cost, timeline.unpriced_seconds) == (0.0, 1200.0)
    assert timeline.attempts[0].cost is None
