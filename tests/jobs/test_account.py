"""What a run cost and lost: hours by market, dollars, phases, steps done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from gpu_spot.jobs import text
from gpu_spot.jobs.account import RunAccount, account_of, to_json
from gpu_spot.jobs.prices import Charge, PriceBook
from gpu_spot.jobs.report import timeline_of
from gpu_spot.jobs.timeline import Ending, build_timeline
from tests.jobs.snapshots import NOW, RUN, job, job_attempt, row

PRICES = PriceBook(
    lambda kind: {"g6.xlarge": 0.8, "g5.xlarge": 1.0}.get(kind),
    {("g6.xlarge", "us-west-2a"): [(0.0, 0.3)]},
    lambda kind: "AWS Price List, 2026-11-24" if kind == "g6.xlarge" else "",
)


def account(
    *attempts: JobAttempt, prices: PriceBook = PRICES, at: float = NOW, is_over: bool = False
) -> RunAccount:
    timeline = build_timeline(attempts, prices, now=at, newest_token=len(attempts))
    return account_of(timeline, prices, at=at, is_over=is_over)


def reported(token: int, begin: float, last_seen: float, **more: Any) -> JobAttempt:
    """An instance of its own that was launched 100 s, and asked for the job 80 s, before its command ran."""
    return job_attempt(
        token,
        f"i-{token}",
        begin,
        last_seen,
        **{"launched": NOW - begin - 100, "booted": NOW - begin - 80, "saving": 10.0, **more},
    )


INTERRUPTED = reported(
    1, 7300, 3700, notice_at=NOW - 3720, cause="spot", ended=NOW - 3700, first_step=0, step=700
)
FINISHED = reported(
    2, 2800, 100, ended=NOW, end="done", purchase_option="on-demand", first_step=690, step=1000,
    exporting=NOW - 400, saving=20.0, resumed=NOW - 3700,
)  # fmt: skip


def test_hours_and_dollars_by_market_against_on_demand() -> None:
    done = account(INTERRUPTED, FINISHED, is_over=True)
    spot, on_demand = done.markets["spot"], done.markets["on-demand"]
    assert (spot.seconds, on_demand.seconds) == (3700, 2900)
    assert spot.dollars == pytest.approx(3700 / 3600 * 0.3)
    assert done.total.list_dollars == pytest.approx(6600 / 3600 * 0.8)
    assert done.saved_dollars == pytest.approx(3700 / 3600 * 0.5)
    assert (done.interruptions, done.repeated_steps, done.unreported_attempts) == (1, 10, 0)


def test_the_phases_of_the_instances_and_the_time_without_one() -> None:
    done = account(INTERRUPTED, FINISHED, is_over=True)
    assert done.phases == {
        "boot": 20 + 20,
        "data": 80 + 80,
        "training": 3590 + 2400 - 20,
        "saving": 10 + 20,
        "export": 400,
    }
    assert (done.elapsed_seconds, done.waiting_seconds) == (7400, 800)


def test_what_was_not_recorded_is_unknown() -> None:
    before = job_attempt(1, "i-1", 1000, 100, ended=NOW - 100)
    seen = account(before)
    assert seen.phases == {"boot or data": 200, "training or saving": 900}
    after = job_attempt(2, "i-2", 50, 5, stopped=0.0, first_step=3, step=4)
    seen = account(before, after)
    assert (seen.repeated_steps, seen.unreported_attempts) == (0, 1)
    assert "steps repeated: unknown (1 attempt without a report)" in " ".join(text.notes(seen))


def test_a_running_job_is_charged_until_now_and_a_lost_one_until_it_may_have_run() -> None:
    running = reported(1, 1000, 40, stopped=0.0)
    assert account(running).total.seconds == 1100
    lost = reported(1, 1000, 500, stopped=0.0)
    seen = account(lost)
    assert seen.total.seconds == 600 + 60
    assert (seen.waiting_seconds, seen.elapsed_seconds) == (440, 1100)
    assert " h elapsed so far, " in next(iter(text.notes(seen)))


def test_an_unknown_spot_price_counts_as_on_demand_and_says_so() -> None:
    in_zone_b = replace(INTERRUPTED, zone="us-west-2b")
    seen = account(in_zone_b, is_over=True)
    assert seen.total.dollars == seen.total.list_dollars == pytest.approx(3700 / 3600 * 0.8)
    assert seen.total.assumed_seconds == 3700
    [row, total] = text.tables(seen)[0].rows
    assert row[4] == total[4] == "up to $0.82"
    assert "Spot price unknown for 1.03 h: counted at the On-Demand price" in list(text.notes(seen))
    late = PriceBook(PRICES.on_demand, {("g6.xlarge", "us-west-2a"): [(NOW - 5500, 0.3)]})
    assert account(INTERRUPTED, prices=late).total.assumed_seconds == 1900


def test_a_total_that_lacks_a_price_says_so() -> None:
    new = replace(FINISHED, instance_type="p9.xlarge")
    seen = account(INTERRUPTED, new, is_over=True)
    assert (seen.saved_dollars, seen.total.unpriced_seconds) == (None, 2900)
    rows = text.tables(seen)[0].rows
    assert rows[1][3:] == ("0.81", "unknown", "unknown")
    assert rows[-1][4] == "over $0.31"
    assert "the cost is without 0.81 h of unknown price" in list(text.notes(seen))
    assert to_json(seen)["saved_usd"] is None


def test_an_unknown_market_is_no_spot() -> None:
    seen = account(replace(INTERRUPTED, purchase_option=""))
    [pool] = seen.pools
    assert (pool.market, pool.charge.dollars) == ("unknown", pool.charge.list_dollars)


def test_the_tables_and_notes() -> None:
    done = account(INTERRUPTED, FINISHED, is_over=True)
    costs, phases = text.tables(done)
    assert costs.columns == ("market", "type", "zone", "hours", "cost", "On-Demand")
    assert costs.rows == (
        ("spot", "g6.xlarge", "us-west-2a", "1.03", "$0.31", "$0.82"),
        ("on-demand", "g6.xlarge", "us-west-2a", "0.81", "$0.64", "$0.64"),
        ("spot", "all", "", "1.03", "$0.31", "$0.82"),
        ("on-demand", "all", "", "0.81", "$0.64", "$0.64"),
        ("total", "", "", "1.83", "$0.95", "$1.47"),
    )
    assert phases.columns == ("phase", "hours", "share")
    assert phases.rows == (
        ("boot", "0.01", "0.6%"),
        ("data", "0.04", "2.4%"),
        ("training", "1.66", "90.5%"),
        ("saving", "0.01", "0.5%"),
        ("export", "0.11", "6.1%"),
        ("total", "1.83", "100.0%"),
    )
    assert list(text.notes(done)) == [
        "2.06 h elapsed, 0.22 h without an instance",
        "1 interruption; 10 steps repeated; 0.00 h of work done again",
        "$0.51 less than On-Demand (35%)",
        "On-Demand prices: AWS Price List, 2026-11-24",
        "not included: instances that never had the job, the time after they released it, volumes, EFS, S3, "
        "traffic",
    ]


@st.composite
def _attempts(draw: st.DrawFn) -> list[JobAttempt]:
    """Attempts on instances that may overlap, of any market, with and without each record."""
    seconds = st.integers(0, 5000)
    result: list[JobAttempt] = []
    for token in range(1, draw(st.integers(1, 6)) + 1):
        moments = [NOW - 100_000 + 3000 * token + draw(seconds)]
        for _ in range(6):
            moments.append(moments[-1] + draw(seconds))
        launched, booted, began, started, exporting, stopped, ended = moments
        starts = draw(st.integers(0, 3))
        result.append(
            JobAttempt(
                token=token,
                revision="a" * 40,
                instance=f"i-{draw(st.integers(1, 4))}",
                instance_type=draw(st.sampled_from(["g6.xlarge", "g5.xlarge", "p9.xlarge"])),
                zone=draw(st.sampled_from(["us-west-2a", "us-west-2b"])),
                purchase_option=draw(st.sampled_from(["spot", "on-demand", "capacity-block", ""])),
                group_role="primary",
                launched=launched,
                booted=draw(st.sampled_from([0.0, booted])),
                began=began,
                last_seen_at=stopped,
                started=started if starts else 0.0,
                starts=starts,
                exporting=draw(st.sampled_from([0.0, exporting])),
                stopped=draw(st.sampled_from([0.0, stopped])),
                ended=draw(st.sampled_from([0.0, ended])),
                saving=draw(st.sampled_from([None, 0.0, 7.0, 1e6])),
                step=draw(st.sampled_from([None, 5, 900])),
                first_step=draw(st.sampled_from([None, 0, 800])),
            )
        )
    return result


@given(_attempts(), st.booleans())
def test_the_sums_of_the_parts_are_the_totals(attempts: Sequence[JobAttempt], is_over: bool) -> None:
    seen = account(*attempts, is_over=is_over)
    total, markets = seen.total, list(seen.markets.values())
    timeline = build_timeline(attempts, PRICES, now=NOW, newest_token=len(attempts))
    for field in fields(Charge):
        of_each = [getattr(one.charge, field.name) for one in timeline.attempts]
        assert sum(of_each) == pytest.approx(getattr(total, field.name))
    assert sum(charge.seconds for charge in markets) == pytest.approx(total.seconds)
    assert sum(charge.dollars for charge in markets) == pytest.approx(total.dollars)
    assert sum(charge.list_dollars for charge in markets) == pytest.approx(total.list_dollars)
    assert sum(seen.phases.values()) == pytest.approx(total.seconds)
    assert min(seen.phases.values(), default=0.0) >= 0
    assert 0 <= seen.waiting_seconds <= seen.elapsed_seconds
    assert seen.elapsed_seconds - seen.waiting_seconds <= total.seconds + 1e-6
    assert total.assumed_seconds + total.unpriced_seconds <= total.seconds + 1e-6
    shown = text.tables(seen)[0].rows
    assert sum(float(row[3].replace(",", "")) for row in shown[: len(seen.pools)]) == pytest.approx(
        float(shown[-1][3].replace(",", "")), abs=0.005 * (len(seen.pools) + 1)
    )


FEW_PRICES = PriceBook(
    lambda kind: {"g6.xlarge": 0.8}.get(kind), {("g6.xlarge", "us-west-2a"): [(0.0, 0.36)]}
)


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
    timeline = timeline_of(
        job(row=row(token=5), attempts=(running, lost, announced, broken, handed)), FEW_PRICES
    )
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
    assert timeline_of(job(attempts=(first, second)), FEW_PRICES).attempts[0].lost_seconds == 600


def test_an_attempt_that_never_started_hides_no_loss() -> None:
    first = job_attempt(1, "i-1", 1000, 500, stopped=0.0)
    between = job_attempt(2, "i-2", 400, 350, started=0.0, starts=0, stopped=0.0)
    third = job_attempt(3, "i-3", 200, 5, stopped=0.0, resumed=NOW - 620)
    attempts = timeline_of(job(attempts=(first, between, third)), FEW_PRICES).attempts
    assert [(one.lost_seconds, one.away_seconds) for one in attempts] == [(120, 300), (0, None), (0, None)]
    assert (attempts[1].ending, attempts[1].worked_seconds) == ("loss", 0.0)


def test_restarts_on_one_instance_are_one_attempt() -> None:
    nothing_yet = job_attempt(1, "i-1", 1000, 950, started=0.0, starts=0, stopped=0.0)
    first = job_attempt(2, "i-1", 900, 600, lost=7.0)
    again = job_attempt(3, "i-1", 500, 5, stopped=0.0, starts=2, resumed=NOW - 650, lost=5.0)
    [summary] = timeline_of(job(attempts=(nothing_yet, first, again)), FEW_PRICES).attempts
    assert (summary.started, summary.ended_at, summary.attempt.starts) == (NOW - 900, NOW - 5, 3)
    assert summary.lost_seconds == 7 + 50 + 5
    assert summary.attempt.launched == nothing_yet.launched


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
def test_the_end_of_the_last_attempt_is_shown(part: JobAttempt, finished: str, ending: Ending) -> None:
    [one] = timeline_of(job(finished=finished, attempts=(part,)), FEW_PRICES).attempts
    assert one.ending == ending


def test_a_timeline_has_one_revision_and_says_if_it_is_cut() -> None:
    old = job_attempt(1, "i-1", 900, 800, revision="b" * 40)
    new = job_attempt(2, "i-2", 700, 5, stopped=0.0)
    timeline = timeline_of(job(row=row(token=2), attempts=(old, new)), FEW_PRICES)
    assert ([one.attempt.instance for one in timeline.attempts], timeline.is_cut) == (["i-2"], False)
    many = [replace(new, token=token) for token in range(6, 6 + ATTEMPTS_RETAINED)]
    assert timeline_of(job(row=row(token=5 + ATTEMPTS_RETAINED), attempts=tuple(many)), FEW_PRICES).is_cut
    assert not timeline_of(
        job(row=row(token=5 + ATTEMPTS_RETAINED), attempts=tuple(many[1:])), FEW_PRICES
    ).is_cut


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
    assert (timeline.charge.dollars, timeline.charge.unpriced_seconds) == (0.0, 1200.0)
    assert timeline.attempts[0].cost is None
