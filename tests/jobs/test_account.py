"""What a run cost and lost: hours by market, dollars, phases, steps done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.jobs.attempt import JobAttempt
from tests.jobs.snapshots import NOW, job_attempt
from userdata.agent.cost import page
from userdata.agent.cost.account import RunAccount, account_of, to_json
from userdata.agent.cost.prices import Charge, PriceBook
from userdata.agent.cost.timeline import build_timeline

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
    assert "steps repeated: unknown (1 attempt without a report)" in " ".join(page.notes(seen))


def test_a_running_job_is_charged_until_now_and_a_lost_one_until_it_may_have_run() -> None:
    running = reported(1, 1000, 40, stopped=0.0)
    assert account(running).total.seconds == 1100
    lost = reported(1, 1000, 500, stopped=0.0)
    seen = account(lost)
    assert seen.total.seconds == 600 + 60
    assert (seen.waiting_seconds, seen.elapsed_seconds) == (440, 1100)
    assert " h elapsed so far, " in next(iter(page.notes(seen)))


def test_an_unknown_spot_price_counts_as_on_demand_and_says_so() -> None:
    in_zone_b = replace(INTERRUPTED, zone="us-west-2b")
    seen = account(in_zone_b, is_over=True)
    assert seen.total.dollars == seen.total.list_dollars == pytest.approx(3700 / 3600 * 0.8)
    assert seen.total.assumed_seconds == 3700
    [row, total] = page.tables(seen)[0].rows
    assert row[4] == total[4] == "up to $0.82"
    assert "Spot price unknown for 1.03 h: counted at the On-Demand price" in list(page.notes(seen))
    late = PriceBook(PRICES.on_demand, {("g6.xlarge", "us-west-2a"): [(NOW - 5500, 0.3)]})
    assert account(INTERRUPTED, prices=late).total.assumed_seconds == 1900


def test_a_total_that_lacks_a_price_says_so() -> None:
    new = replace(FINISHED, instance_type="p9.xlarge")
    seen = account(INTERRUPTED, new, is_over=True)
    assert (seen.saved_dollars, seen.total.unpriced_seconds) == (None, 2900)
    rows = page.tables(seen)[0].rows
    assert rows[1][3:] == ("0.81", "unknown", "unknown")
    assert rows[-1][4] == "over $0.31"
    assert "the cost is without 0.81 h of unknown price" in list(page.notes(seen))
    assert to_json(seen)["saved_usd"] is None


def test_an_unknown_market_is_no_spot() -> None:
    seen = account(replace(INTERRUPTED, purchase_option=""))
    [pool] = seen.pools
    assert (pool.market, pool.charge.dollars) == ("unknown", pool.charge.list_dollars)


def test_the_page() -> None:
    text = page.markdown(account(INTERRUPTED, FINISHED, is_over=True), "resnet", "a" * 40, "done")
    assert (
        text
        == f"""\
# What resnet cost

Run `{"a" * 40}`, done, 2026-01-05 12:00 UTC.

| market | type | zone | hours | cost | On-Demand |
| --- | --- | --- | ---: | ---: | ---: |
| spot | g6.xlarge | us-west-2a | 1.03 | $0.31 | $0.82 |
| on-demand | g6.xlarge | us-west-2a | 0.81 | $0.64 | $0.64 |
| spot | all |  | 1.03 | $0.31 | $0.82 |
| on-demand | all |  | 0.81 | $0.64 | $0.64 |
| total |  |  | 1.83 | $0.95 | $1.47 |

| phase | hours | share |
| --- | ---: | ---: |
| boot | 0.01 | 0.6% |
| data | 0.04 | 2.4% |
| training | 1.66 | 90.5% |
| saving | 0.01 | 0.5% |
| export | 0.11 | 6.1% |
| total | 1.83 | 100.0% |

- 2.06 h elapsed, 0.22 h without an instance
- 1 interruption; 10 steps repeated; 0.00 h of work done again
- $0.51 less than On-Demand (35%)
- On-Demand prices: AWS Price List, 2026-11-24
- not included: instances that never had the job, the time after they released it, volumes, EFS, S3, traffic
"""
    )


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
    shown = page.tables(seen)[0].rows
    assert sum(float(row[3].replace(",", "")) for row in shown[: len(seen.pools)]) == pytest.approx(
        float(shown[-1][3].replace(",", "")), abs=0.005 * (len(seen.pools) + 1)
    )
