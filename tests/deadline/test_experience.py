import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.experience import (
    MIN_SAMPLES,
    PRIOR_LAUNCH_DELAY_SECONDS,
    PRIOR_RESTART_FACTOR,
    PRIOR_THROUGHPUT,
    Experience,
    JobEstimates,
    SampleStatistics,
)
from lambdas.core.deadline.model import Job, JobMode
from lambdas.core.deadline.safety import DeadlineConstraints
from research.simulation.deadline.policies import NAMES, build
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.simulate import simulate
from research.simulation.deadline.uncertainty import Draws, UncertaintyModel
from tests.deadline.test_safety import Whimsical

JOB = Job(24 * 3600, 36 * 3600, 1200)


def statistics(*values: float) -> SampleStatistics:
    result = SampleStatistics()
    for value in values:
        result = result.with_sample(value)
    return result


def enough(**quantities: list[float]) -> Experience:
    """Return ``MIN_SAMPLES`` samples as planned, and these values in addition."""
    usual = {"restart_overheads": 1200.0, "launch_delays": 0.0, "throughputs": 1.0}
    return Experience(
        **{
            name: statistics(*[value] * MIN_SAMPLES, *quantities.get(name, []))
            for name, value in usual.items()
        }
    )


def test_without_samples_the_priors_apply():
    estimates = Experience().estimate(JOB, 1.0)
    assert (estimates.restart_overhead, estimates.max_restart_overhead) == (1200, PRIOR_RESTART_FACTOR * 1200)
    assert (estimates.max_launch_delay, estimates.min_throughput) == (
        PRIOR_LAUNCH_DELAY_SECONDS,
        PRIOR_THROUGHPUT,
    )


def test_samples_that_match_the_plan_give_the_plan():
    assert enough().estimate(JOB, 1.0) == JobEstimates.as_planned(JOB)


def test_with_one_sample_too_few_the_prior_applies():
    few = Experience(restart_overheads=statistics(*[1200.0] * (MIN_SAMPLES - 1)))
    assert few.estimate(JOB, 1.0).max_restart_overhead == PRIOR_RESTART_FACTOR * 1200
    few = Experience(
        launch_delays=statistics(*[0.0] * (MIN_SAMPLES - 1)),
        throughputs=statistics(*[1.0] * (MIN_SAMPLES - 1)),
    )
    assert few.estimate(JOB, 1.0).max_launch_delay == PRIOR_LAUNCH_DELAY_SECONDS
    assert few.estimate(JOB, 1.0).min_throughput == PRIOR_THROUGHPUT


def test_estimates_are_the_worst_sample_and_a_quarter_of_the_spread():
    estimates = enough(restart_overheads=[2000.0], throughputs=[0.8]).estimate(JOB, 0.8)
    assert estimates.max_restart_overhead == 2200
    assert estimates.min_throughput == pytest.approx(0.75)
    assert 1200 < estimates.restart_overhead < 1300
    assert estimates.min_restart_overhead == 1200


def test_after_a_single_launch_delay_at_least_the_prior_applies():
    assert enough(launch_delays=[60.0]).estimate(JOB, 1.0).max_launch_delay == PRIOR_LAUNCH_DELAY_SECONDS
    assert enough(launch_delays=[7200.0]).estimate(JOB, 1.0).max_launch_delay == 9000


def test_something_worse_than_the_prior_counts_at_once():
    estimates = Experience(restart_overheads=statistics(5000.0), throughputs=statistics(0.5)).estimate(
        JOB, 1.0
    )
    assert (estimates.max_restart_overhead, estimates.min_throughput) == (5000, 0.5)


def test_a_simulated_job_adds_samples():
    pool = PoolRuns.of_ticks("pool", [True] * 200 + [False] * 30 + [True] * 3000)
    experience = Experience()
    draws = Draws(UncertaintyModel(longer=2.0, slowest=0.7), pool)
    simulate(pool, 0, Job(20 * 3600, 45 * 3600, 600), build("greedy"), draws, experience)
    assert experience.restart_overheads.minimum == experience.restart_overheads.maximum == 1200
    assert 0.7 <= experience.throughputs.minimum < experience.throughputs.maximum <= 1
    assert experience.throughputs.count >= 15


@given(
    lengths=st.lists(st.integers(1, 150), min_size=2, max_size=20),
    first=st.booleans(),
    compute=st.integers(1, 400),
    more=st.integers(0, 400),
    overhead_minutes=st.integers(1, 30),
    uncertainty=st.builds(
        UncertaintyModel,
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
def test_no_policy_misses_a_deadline_with_a_sufficient_reserve(
    lengths, first, compute, more, overhead_minutes, uncertainty, tick, wants
):
    overhead = overhead_minutes * 60.0
    experience = Experience(
        statistics(
            *[overhead] * MIN_SAMPLES,
            overhead / (1 + uncertainty.spread),
            overhead * (1 + uncertainty.spread),
        ),
        statistics(*[0.0] * MIN_SAMPLES, *([3600.0] if uncertainty.refused_with_spot else [])),
        statistics(*[1.0] * MIN_SAMPLES, uncertainty.slowest),
    )
    plan = Job(compute * 60, 10**7, overhead, tick=tick, checkpoint=1800 * (1 - uncertainty.saved))
    constraints = DeadlineConstraints(plan, experience.estimate(plan, 1.0))
    needed = plan.compute / constraints.estimates.min_throughput + constraints.reserve
    deadline = 60 * (int(needed // 60) + 3 + more)
    job = Job(plan.compute, deadline, overhead, tick=tick, checkpoint=plan.checkpoint)
    ups = [(index % 2 == 0) == first for index, length in enumerate(lengths) for _ in range(length)]
    pool = PoolRuns.of_ticks("pool", (ups * (deadline // 60 // len(ups) + 1))[: deadline // 60])
    draws = Draws(uncertainty, pool)
    for policy in (Whimsical(wants), *map(build, NAMES)):
        outcome = simulate(pool, 0, job, policy, draws, experience)
        assert not outcome.late, policy.name
        assert not outcome.said_hours, policy.name
