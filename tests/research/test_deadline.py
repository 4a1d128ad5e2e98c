"""Training jobs with a deadline: the replay, its bound against a plain search, what was feasible."""

import functools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.model import DeadlinePolicy, Job
from research.simulation.deadline.bound import clairvoyant
from research.simulation.deadline.policies import NAMES, build
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.simulate import simulate


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
