from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.model import Choice, DeadlinePolicy, Job, JobMode
from market.deadline.policies import NAMES, build
from market.deadline.pool import PoolRun, PoolRuns
from market.deadline.simulate import simulate
from market.supply.trace import PoolTrace, TraceError


def pool_of(*lengths: int, first: bool = True) -> PoolRuns:
    ups = [(index % 2 == 0) == first for index, length in enumerate(lengths) for _ in range(length)]
    return PoolRuns.of_ticks("pool", ups)


@dataclass
class EveryTick:
    """The policy, asked again at every tick: it promises nothing for longer."""

    policy: DeadlinePolicy
    name: ClassVar[str] = "every-tick"

    def choose(self, job, state):
        return replace(self.policy.choose(job, state), valid_seconds=job.tick)


@pytest.mark.long
@given(
    lengths=st.lists(st.integers(1, 300), min_size=3, max_size=30),
    first=st.booleans(),
    compute=st.integers(5, 900),
    overhead=st.sampled_from([0, 1, 3, 6, 11, 20, 50]),
    slack=st.integers(0, 900),
    start=st.integers(0, 200),
)
def test_skipping_ticks_changes_nothing(lengths, first, compute, overhead, slack, start):
    deadline = compute + overhead + slack
    ups = [(index % 2 == 0) == first for index, length in enumerate(lengths) for _ in range(length)]
    needed = start + deadline
    pool = PoolRuns.of_ticks("pool", (ups * (needed // len(ups) + 1))[:needed])
    job = Job(compute * 60, deadline * 60, overhead * 60)
    for name in NAMES:
        fast = simulate(pool, start, job, build(name))
        slow = simulate(pool, start, job, EveryTick(build(name)))
        assert fast == slow, name


def test_greedy_pays_each_boot_and_loses_nothing_else():
    # 100 ticks of spot, 50 without, spot again: 60 + 6 ticks would do, but the job needs 150.
    outcome = simulate(pool_of(100, 50, 400), 0, Job(150 * 60, 500 * 60, 6 * 60), build("greedy"))
    assert outcome.starts == 2
    assert outcome.interruptions == 1
    assert outcome.on_demand_hours == 0
    assert outcome.spot_hours == pytest.approx((150 + 2 * 6) / 60)
    assert outcome.cost == pytest.approx(0.3 * (150 + 2 * 6) / 60)
    assert outcome.hours == pytest.approx((150 + 2 * 6 + 50) / 60)


def test_on_demand_takes_compute_and_one_change_over():
    outcome = simulate(pool_of(1000), 7, Job(150 * 60, 500 * 60, 6 * 60), build("on-demand"))
    assert (outcome.cost, outcome.starts) == (pytest.approx(156 / 60), 1)


def test_uniform_progress_reads_its_return_to_spot_in_two_ways():
    # Without spot for 30 ticks the job falls behind and buys on-demand; then spot comes for good.
    pool, job = pool_of(30, 2000, first=False), Job(200 * 60, 400 * 60, 10 * 60)
    at_once = simulate(pool, 0, job, build("uniform-progress-at-once"))
    hysteresis = simulate(pool, 0, job, build("uniform-progress"))
    assert at_once.on_demand_hours == pytest.approx(29 / 60)
    # Behind by 1 tick × ½ at its start, by 5.5 when booted: 2 × 10 × ½ ahead after 31 more ticks.
    assert hysteresis.on_demand_hours == pytest.approx(41 / 60)
    assert hysteresis.starts == at_once.starts == 2


def test_uniform_progress_leaves_on_demand_two_change_overs_ahead_unless_it_keeps_it():
    pool, job = pool_of(1000, first=False), Job(200 * 60, 400 * 60, 10 * 60)
    assert simulate(pool, 0, job, build("uniform-progress")).starts > 1
    assert simulate(pool, 0, job, build("uniform-progress-keep")).starts == 1


def test_the_age_of_the_pool_is_known_only_as_far_as_it_was_observed():
    ages = []

    class Watcher:
        name = "watcher"

        def choose(self, job, state):
            ages.append(state.age / 60)
            return Choice(JobMode.IDLE, job.tick)

    pool = pool_of(10, 90, 100)
    simulate(pool, 60, Job(60, 60 * 60, 0), Watcher())
    assert ages[:3] == [0, 1, 2]  # not 50: the pool has been without spot since tick 10
    assert ages[40] == 0  # spot has come at tick 100


def test_a_job_must_fit_into_the_pool():
    with pytest.raises(ValueError, match="does not fit into 100 ticks"):
        simulate(pool_of(100), 1, Job(60, 6000, 60), build("greedy"))


def test_a_sample_holds_until_the_next():
    runs = PoolRuns.of_trace(PoolTrace("pool", 195.0, (1, 1, 0, 4))).runs
    assert runs == (PoolRun(0, 7, True), PoolRun(7, 10, False), PoolRun(10, 13, True))
    with pytest.raises(TraceError, match="at least one tick"):
        PoolRuns.of_trace(PoolTrace("pool", 30.0, (1,)))
