import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.model import Choice, Job, JobMode
from market.deadline.feasible import feasible
from market.deadline.policies import build
from market.deadline.pool import PoolRuns
from market.deadline.simulate import simulate
from market.deadline.uncertainty import HOUR, Draws, UncertaintyModel


def pool_of(*lengths: int, first: bool = True) -> PoolRuns:
    ups = [(index % 2 == 0) == first for index, length in enumerate(lengths) for _ in range(length)]
    return PoolRuns.of_ticks("pool", ups)


LONG = pool_of(*([300, 100] * 200))


class Wants:
    """Wants one market all the time."""

    name = "wants"

    def __init__(self, mode: JobMode) -> None:
        self.mode = mode

    def choose(self, job, state):
        return Choice(self.mode, valid_seconds=job.tick)


def test_by_default_all_is_as_planned():
    draws = Draws(UncertaintyModel(), LONG)
    assert {draws.restart_seconds(400, mode, tick) for mode in JobMode for tick in range(50)} == {7}
    assert not any(draws.refused(tick) for tick in range(0, LONG.ticks, 17))
    assert draws.pace(123) == (1.0, LONG.ticks)
    assert draws.price(123, 0.3) == (0.3, LONG.ticks)
    assert draws.saved(123)


def test_what_is_drawn_depends_on_seed_pool_and_tick_only():
    uncertainty = UncertaintyModel(spread=1.0, refusals_a_day=3, slowest=0.7, prices=(0.3, 0.7))

    def what(draws):
        boots = [draws.restart_seconds(1200, JobMode.SPOT, tick) for tick in range(30)]
        return boots, draws.refusals, [draws.pace(tick) for tick in range(0, 6000, 60)]

    assert what(Draws(uncertainty, LONG)) == what(Draws(uncertainty, LONG))
    assert what(Draws(uncertainty, LONG)) != what(
        Draws(UncertaintyModel(2, **{"spread": 1.0, "slowest": 0.7}), LONG)
    )


def test_change_overs_vary_within_their_bounds_and_as_often_below_as_above():
    draws = Draws(UncertaintyModel(longer=1.5, spread=1.0), LONG)
    took = [draws.restart_seconds(1200, JobMode.SPOT, tick) for tick in range(4000)]
    assert 15 <= min(took) <= 16
    assert 59 <= max(took) <= 60
    assert sum(took_ > 30 for took_ in took) / len(took) == pytest.approx(0.5, abs=0.04)


def test_on_demand_is_refused_for_an_hour_from_the_end_of_spot_on_and_had_for_an_hour_after():
    draws = Draws(UncertaintyModel(refused_with_spot=0.5), LONG)
    ends = {run.start for run in LONG.runs[1:] if not run.up}
    assert {begin for begin, _ in draws.refusals} <= ends
    assert len(draws.refusals) / len(ends) == pytest.approx(0.5, abs=0.1)
    begin, end = draws.refusals[3]
    assert end - begin == HOUR
    assert [draws.refused(tick) for tick in (begin - 1, begin, end - 1, end)] == [False, True, True, False]
    often = Draws(UncertaintyModel(refusals_a_day=12), LONG).refusals
    assert all(after[0] >= before[1] + HOUR for before, after in itertools.pairwise(often))


@pytest.mark.parametrize("progress", ["drift", "steps"])
def test_progress_stays_between_the_slowest_and_the_plan(progress):
    draws = Draws(UncertaintyModel(slowest=0.7, progress=progress), LONG)
    paces = [draws.pace(hour * HOUR).value for hour in range(LONG.ticks // HOUR)]
    assert 0.7 <= min(paces) < 0.75
    assert 0.95 < max(paces) <= 1.0
    assert sum(paces) / len(paces) == pytest.approx(0.85, abs=0.02)
    assert draws.pace(90).end == 120


def test_a_price_lasts_for_its_hours():
    draws = Draws(UncertaintyModel(prices=(0.3, 0.7, 1.0), price_hours=2), LONG)
    prices = [draws.price(tick, 0.5).value for tick in range(0, LONG.ticks, 2 * HOUR)]
    assert set(prices) == {0.3, 0.7, 1.0}
    assert all(one != other for one, other in itertools.pairwise(prices))
    assert draws.price(2 * HOUR - 1, 0.5) == (prices[0], 2 * HOUR)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"saved": 1.5}, "saved is 1.5, a share"),
        ({"slowest": 0.0}, "slowest is 0.0, a part of the plan"),
        ({"longer": 0.0}, "longer is 0.0, a number above 0"),
        ({"spread": -1.0}, "spread is -1.0, a number ≥ 0"),
        ({"refusals_a_day": math.nan}, "refusals_a_day is nan"),
    ],
)
def test_invalid_uncertainty_is_rejected(fields, message):
    with pytest.raises(ValueError, match=message):
        UncertaintyModel(**fields)


def test_an_interruption_without_notice_costs_what_was_done_since_the_last_checkpoint():
    # Spot for 6 ticks of boot and 75 of work, 45 of them not saved; then it comes back.
    pool, job = pool_of(81, 10, 1000), Job(200 * 60, 900 * 60, 360, checkpoint=1800)
    saved, lost = (
        simulate(pool, 0, job, build("greedy"), Draws(UncertaintyModel(saved=saved), pool))
        for saved in (1.0, 0.0)
    )
    assert saved.hours == pytest.approx((81 + 10 + 6 + 125) / 60)
    assert lost.hours == pytest.approx((81 + 10 + 6 + 125 + 15) / 60)


def test_a_job_waits_for_on_demand_that_is_refused_and_takes_spot_meanwhile():
    # Spot ends at tick 30, and on-demand cannot be had for an hour from there; spot is back at 60.
    pool, job = pool_of(30, 30, 1000), Job(200 * 60, 500 * 60, 360)
    draws = Draws(UncertaintyModel(refused_with_spot=1.0), pool)
    assert draws.refusals == ((30, 90),)
    outcome = simulate(pool, 31, job, Wants(JobMode.ON_DEMAND), draws)
    # From 60 on it boots and works on spot; at 90 it gets the on-demand that it wants.
    assert outcome.spot_hours == pytest.approx(30 / 60)
    assert outcome.on_demand_hours == pytest.approx((200 - 24 + 6) / 60)


def test_spot_that_saves_nothing_is_not_bought_and_each_hour_is_paid_at_its_price():
    pool, job = pool_of(4000), Job(20 * 3600, 40 * 3600, 360)
    dear = simulate(pool, 0, job, build("greedy"), Draws(UncertaintyModel(prices=(1.0,)), pool))
    assert (dear.spot_hours, dear.cost) == (0, pytest.approx(20.1))
    draws = Draws(UncertaintyModel(prices=(0.3, 0.7), price_hours=5), pool)
    moving = simulate(pool, 0, job, build("greedy"), draws)
    prices = [draws.price(5 * HOUR * period, 0.3).value for period in range(5)]
    assert moving.cost == pytest.approx(5 * sum(prices[:4]) + 0.1 * prices[4])


def test_with_a_decision_every_other_tick_a_loss_is_detected_a_tick_late():
    pool, job = pool_of(11, 1000), Job(200 * 60, 900 * 60, 360, tick=120)
    outcome = simulate(pool, 0, job, build("uniform-progress"))
    seen = simulate(pool, 0, Job(200 * 60, 900 * 60, 360), build("uniform-progress"))
    assert outcome.interruptions == seen.interruptions == 1
    assert outcome.spot_hours == seen.spot_hours == pytest.approx(11 / 60)


def test_slow_work_takes_longer_and_is_paid():
    pool, job = pool_of(4000), Job(20 * 3600, 60 * 3600, 0)
    draws = Draws(UncertaintyModel(slowest=0.5), pool)
    outcome = simulate(pool, 0, job, Wants(JobMode.ON_DEMAND), draws)
    done = sum(draws.pace(tick).value for tick in range(round(outcome.hours * 60)))
    assert 20 * 60 <= done < 20 * 60 + 1


def test_neither_on_demand_that_is_refused_nor_spot_that_is_gone_could_have_been_used():
    # Spot for ticks 0 to 4, 10 to 29, and from 40 on; on-demand is refused from 5 to 64.
    pool, overhead = pool_of(5, 5, 20, 10, 60), 4 * 60.0
    refused, had = Draws(UncertaintyModel(refused_with_spot=1.0), pool), Draws(UncertaintyModel(), pool)
    assert refused.refusals == ((5, 65),)

    def could(draws, compute):
        return feasible(draws, 10, Job(compute * 60, 40 * 60, overhead))

    assert could(had, 36)
    # Two boots of four ticks, and nothing for ten.
    assert could(refused, 22)
    assert not could(refused, 23)


@given(
    runs=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    first=st.booleans(),
    compute=st.integers(1, 12),
    overhead=st.integers(0, 3),
    spread=st.sampled_from([0.0, 1.0]),
    refused=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(1, 50),
)
def test_feasible_deadlines_are_those_that_a_plain_search_finds(
    runs, first, compute, overhead, spread, refused, seed
):
    pool = pool_of(*runs, first=first)
    uncertainty = UncertaintyModel(seed, spread=spread, refused_with_spot=refused, refusal_seconds=180)
    draws, end = Draws(uncertainty, pool), pool.ticks
    if compute + overhead > end:
        return
    job, ups = (
        Job(compute * 60, end * 60, overhead * 60),
        [run.up for run in pool.runs for _ in range(run.start, run.end)],
    )

    def most(tick: int, mode: JobMode, boot: int) -> int:
        if mode is JobMode.SPOT and tick < end and not ups[tick]:
            mode = JobMode.IDLE
        if tick == end:
            return 0
        options = [
            most(tick + 1, mode, boot - 1) if boot else most(tick + 1, mode, 0) + (mode is not JobMode.IDLE)
        ]
        for start in {JobMode.SPOT, JobMode.ON_DEMAND} - {mode}:
            if ups[tick] if start is JobMode.SPOT else not draws.refused(tick):
                took = draws.restart_seconds(job.restart_overhead, start, tick)
                options.append(most(tick + 1, start, took - 1) if took else 1 + most(tick + 1, start, 0))
        return max(options)

    assert feasible(draws, 0, job) == (most(0, JobMode.IDLE, 0) >= compute)
