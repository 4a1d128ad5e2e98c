import functools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.model import Job
from market.deadline.bound import clairvoyant
from market.deadline.policies import NAMES, build
from market.deadline.pool import PoolRuns
from market.deadline.simulate import simulate


def search(ups: list[bool], compute: int, deadline: int, overhead: int, price: float) -> float:
    """The plain search over ticks: at each tick anything that can be held is tried."""

    @functools.cache
    def least(tick: int, left: int, mode: str, boot: int) -> float:
        if left == 0:
            return 0.0
        if tick == deadline:
            return math.inf
        best = least(tick + 1, left, "idle", 0)
        for choice, cost in (("spot", price), ("on-demand", 1.0)):
            if choice == "spot" and not ups[tick]:
                continue
            missing = boot if choice == mode else overhead
            after = (left, choice, missing - 1) if missing else (left - 1, choice, 0)
            best = min(best, cost + least(tick + 1, *after))
        return best

    return least(0, compute, "idle", 0)


@given(
    runs=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    first=st.booleans(),
    compute=st.integers(1, 10),
    overhead=st.integers(0, 3),
    price=st.sampled_from([0.1, 0.3, 0.7, 1.0]),
    cut=st.integers(0, 4),
)
def test_it_is_the_least_of_a_plain_search(runs, first, compute, overhead, price, cut):
    ups = [(index % 2 == 0) == first for index, length in enumerate(runs) for _ in range(length)]
    deadline = max(1, len(ups) - cut)
    pool = PoolRuns.of_ticks("pool", ups)
    found = clairvoyant(pool, 0, overhead, [(compute, deadline)], price)[compute, deadline]
    expected = search(ups, compute, deadline, overhead, price)
    assert found == pytest.approx(expected)


def test_jobs_that_share_a_start_do_not_disturb_each_other():
    pool = PoolRuns.of_ticks("pool", [i % 7 < 3 for i in range(60)])
    jobs = [(5, 12), (5, 40), (20, 40), (20, 45), (1, 12)]
    together = clairvoyant(pool, 4, 2, jobs, 0.3)
    assert together == {job: clairvoyant(pool, 4, 2, [job], 0.3)[job] for job in jobs}


def test_spot_all_the_time_costs_the_spot_price_and_none_of_the_time_on_demand():
    for up, price in ((True, 0.3), (False, 1.0)):
        pool = PoolRuns.of_ticks("pool", [up] * 100)
        assert clairvoyant(pool, 0, 6, [(50, 90)], 0.3)[50, 90] == pytest.approx(56 * price)


def test_a_job_that_cannot_be_done_costs_inf():
    assert clairvoyant(PoolRuns.of_ticks("pool", [True] * 20), 0, 6, [(15, 20)], 0.3)[15, 20] == math.inf


def test_a_pool_that_ends_before_the_deadline_is_refused():
    with pytest.raises(ValueError, match="do not fit into 20 ticks"):
        clairvoyant(PoolRuns.of_ticks("pool", [True] * 20), 10, 1, [(5, 11)], 0.3)


@pytest.mark.long
@given(
    runs=st.lists(st.integers(1, 90), min_size=8, max_size=12),
    overhead=st.integers(0, 20),
    slack=st.integers(0, 120),
)
def test_no_policy_is_cheaper(runs, overhead, slack):
    ups = [index % 2 == 0 for index, length in enumerate(runs) for _ in range(length)]
    compute = len(ups) - slack - overhead
    if compute < 1:
        return
    pool = PoolRuns.of_ticks("pool", ups)
    least = clairvoyant(pool, 0, overhead, [(compute, len(ups))], 0.3)[compute, len(ups)] / 60
    job = Job(compute * 60, len(ups) * 60, overhead * 60)
    for name in NAMES:
        assert simulate(pool, 0, job, build(name)).cost >= least - 1e-9
