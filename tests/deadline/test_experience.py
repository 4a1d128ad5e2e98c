import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.experience import (
    MIN_SAMPLES,
    PRIOR_RESTART_FACTOR,
    PRIOR_THROUGHPUT,
    PRIOR_LAUNCH_DELAY_SECONDS,
    Experience,
    JobEstimates,
    SampleStatistics,
)
from lambdas.core.deadline.model import Choice, Job, JobMode
from lambdas.core.deadline.safety import DeadlineConstraints
from market.deadline.doubts import Doubts, Draws
from market.deadline.policies import NAMES, build
from market.deadline.pool import PoolRuns
from market.deadline.simulate import simulate

JOB = Job(24 * 3600, 36 * 3600, 1200)


def seen(*values: float) -> SampleStatistics:
    found = SampleStatistics()
    for value in values:
        found = found.with_sample(value)
    return found


def enough(**quantities: list[float]) -> Experience:
    """All as told in ``ENOUGH`` cases, and these values on top."""
    usual = {"changeovers": 1200.0, "refusals": 0.0, "paces": 1.0}
    return Experience(
        **{name: seen(*[value] * MIN_SAMPLES, *quantities.get(name, [])) for name, value in usual.items()}
    )


def test_before_anything_was_seen_the_priors_hold():
    known = Experience().estimate(JOB, 1.0)
    assert (known.restart_overhead, known.max_restart_overhead) == (1200, PRIOR_RESTART_FACTOR * 1200)
    assert (known.max_launch_delay, known.min_throughput) == (PRIOR_LAUNCH_DELAY_SECONDS, PRIOR_THROUGHPUT)


def test_what_always_went_as_told_is_taken_as_told():
    assert enough().estimate(JOB, 1.0) == JobEstimates.as_planned(JOB)


def test_one_case_too_few_leaves_the_prior():
    few = Experience(restart_overheads=seen(*[1200.0] * (MIN_SAMPLES - 1)))
    assert few.estimate(JOB, 1.0).max_restart_overhead == PRIOR_RESTART_FACTOR * 1200
    few = Experience(launch_delays=seen(*[0.0] * (MIN_SAMPLES - 1)), throughputs=seen(*[1.0] * (MIN_SAMPLES - 1)))
    assert few.estimate(JOB, 1.0).max_launch_delay == PRIOR_LAUNCH_DELAY_SECONDS
    assert few.estimate(JOB, 1.0).min_throughput == PRIOR_THROUGHPUT


def test_the_worst_that_was_seen_is_reckoned_with_and_a_quarter_of_the_spread():
    known = enough(changeovers=[2000.0], paces=[0.8]).estimate(JOB, 0.8)
    assert known.max_restart_overhead == 2200
    assert known.min_throughput == pytest.approx(0.75)
    assert 1200 < known.restart_overhead < 1300
    assert known.min_restart_overhead == 1200


def test_after_a_single_refusal_at_least_the_prior_holds():
    assert enough(refusals=[60.0]).estimate(JOB, 1.0).max_launch_delay == PRIOR_LAUNCH_DELAY_SECONDS
    assert enough(refusals=[7200.0]).estimate(JOB, 1.0).max_launch_delay == 9000


def test_something_worse_than_the_prior_counts_at_once():
    known = Experience(restart_overheads=seen(5000.0), throughputs=seen(0.5)).estimate(JOB, 1.0)
    assert (known.max_restart_overhead, known.min_throughput) == (5000, 0.5)


def test_a_job_learns_from_what_it_meets():
    pool = PoolRuns.of_ticks("pool", [True] * 200 + [False] * 30 + [True] * 3000)
    experience = Experience()
    draws = Draws(Doubts(longer=2.0, slowest=0.7), pool)
    simulate(pool, 0, Job(20 * 3600, 45 * 3600, 600), build("greedy"), draws, experience)
    assert experience.restart_overheads.minimum == experience.restart_overheads.maximum == 1200
    assert 0.7 <= experience.throughputs.minimum < experience.throughputs.maximum <= 1
    assert experience.throughputs.count >= 15


class Whimsical:
    """Wants anything but on-demand at any time."""

    name = "whimsical"

    def __init__(self, wants: list[JobMode]) -> None:
        self.wants, self.looks = wants, 0

    def choose(self, job, state):
        self.looks += 1
        return Choice(self.wants[self.looks % len(self.wants)], valid_seconds=job.tick)


@given(
    lengths=st.lists(st.integers(1, 150), min_size=2, max_size=20),
    first=st.booleans(),
    compute=st.integers(1, 400),
    more=st.integers(0, 400),
    changeover=st.integers(1, 30),
    doubts=st.builds(
        Doubts,
        seed=st.integers(1, 100),
        spread=st.sampled_from([0.0, 1.0]),
        refused_with_spot=st.sampled_from([0.0, 0.5, 1.0]),
        slowest=st.sampled_from([0.7, 1.0]),
        progress=st.sampled_from(["drift", "steps"]),
        prices=st.sampled_from([(), (0.3, 1.0)]),
        saved=st.sampled_from([0.0, 1.0]),
    ),
    tick=st.sampled_from([60.0, 120.0]),
    wants=st.lists(st.sampled_from([JobMode.IDLE, JobMode.SPOT]), min_size=1, max_size=12),
)
def test_no_policy_misses_a_deadline_whose_reserve_covers_the_world(
    lengths, first, compute, more, changeover, doubts, tick, wants
):
    told = changeover * 60.0
    known = Experience(
        seen(*[told] * MIN_SAMPLES, told / (1 + doubts.spread), told * (1 + doubts.spread)),
        seen(*[0.0] * MIN_SAMPLES, *([3600.0] if doubts.refused_with_spot else [])),
        seen(*[1.0] * MIN_SAMPLES, doubts.slowest),
    )
    asked = Job(compute * 60, 10**7, told, tick=tick, checkpoint=1800 * (1 - doubts.saved))
    prudence = DeadlineConstraints(asked, known.estimate(asked, 1.0))
    needed = asked.compute / prudence.estimates.min_throughput + prudence.reserve
    deadline = 60 * (int(needed // 60) + 3 + more)
    job = Job(asked.compute, deadline, told, tick=tick, checkpoint=asked.checkpoint)
    ups = [(index % 2 == 0) == first for index, length in enumerate(lengths) for _ in range(length)]
    pool = PoolRuns.of_ticks("pool", (ups * (deadline // 60 // len(ups) + 1))[: deadline // 60])
    draws = Draws(doubts, pool)
    for policy in (Whimsical(wants), *map(build, NAMES)):
        outcome = simulate(pool, 0, job, policy, draws, known)
        assert not outcome.late, policy.name
        assert not outcome.said_hours, policy.name
