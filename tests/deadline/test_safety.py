import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.experience import JobEstimates
from lambdas.core.deadline.model import Choice, DeadlineState, Job, JobMode
from lambdas.core.deadline.safety import DeadlineConstraints, decide
from research.simulation.deadline.policies import NAMES, build
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.simulate import simulate


def as_planned(job: Job) -> DeadlineConstraints:
    return DeadlineConstraints(job, JobEstimates.as_planned(job))


class Whimsical:
    """Wants anything at any time: what a broken policy or table could ask for."""

    name = "whimsical"

    def __init__(self, wants: list[JobMode]) -> None:
        self.wants, self.looks = wants, 0

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        self.looks += 1
        return Choice(self.wants[self.looks % len(self.wants)], valid_seconds=job.tick)


class Always:
    name = "always"

    def __init__(self, mode: JobMode) -> None:
        self.mode = mode

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        return Choice(self.mode)


POOLS = st.lists(st.integers(1, 150), min_size=1, max_size=20)


def pool_of(lengths: list[int], first: bool, ticks: int) -> PoolRuns:
    ups = [(index % 2 == 0) == first for index, length in enumerate(lengths) for _ in range(length)]
    return PoolRuns.of_ticks("pool", (ups * (ticks // len(ups) + 1))[:ticks])


@given(
    lengths=POOLS,
    first=st.booleans(),
    compute=st.integers(1, 400),
    overhead=st.integers(0, 45),
    slack=st.integers(0, 400),
    wants=st.lists(st.sampled_from(list(JobMode)), min_size=1, max_size=12),
)
def test_no_policy_can_miss_a_deadline(lengths, first, compute, overhead, slack, wants):
    deadline = compute + overhead + slack
    pool = pool_of(lengths, first, deadline)
    job = Job(compute * 60, deadline * 60, overhead * 60)
    wilful = Whimsical([m for m in wants if m is not JobMode.ON_DEMAND] or [JobMode.IDLE])
    for policy in (wilful, Always(JobMode.SPOT), Always(JobMode.IDLE), *map(build, NAMES)):
        outcome = simulate(pool, 0, job, policy)
        assert not outcome.late, policy.name


def test_waiting_ends_at_the_last_safe_moment_and_not_before():
    job = Job(compute=3600, deadline=7200, restart_overhead=360)
    pool = PoolRuns.of_ticks("pool", [False] * 120)
    outcome = simulate(pool, 0, job, Always(JobMode.IDLE))
    assert outcome.hours == pytest.approx(2.0)
    assert outcome.on_demand_hours == pytest.approx(1.1)


def test_work_that_may_be_lost_ends_waiting_earlier():
    job = Job(compute=3600, deadline=7200, restart_overhead=360, checkpoint=600)
    outcome = simulate(PoolRuns.of_ticks("pool", [False] * 120), 0, job, Always(JobMode.IDLE))
    assert outcome.hours == pytest.approx(2.0 - 600 / 3600)


@pytest.mark.parametrize(
    ("spare", "expected"), [(0, JobMode.ON_DEMAND), (359, JobMode.ON_DEMAND), (360, JobMode.SPOT)]
)
def test_spot_is_started_only_while_its_whole_boot_could_be_lost(spare, expected):
    job = Job(compute=36000, deadline=72000, restart_overhead=360)
    state = DeadlineState(3600, 3600 + 360 + spare, JobMode.IDLE, 0.0, is_spot_available=True, age=math.inf)
    assert decide(as_planned(job), state, Always(JobMode.SPOT)).mode is expected


def test_running_spot_is_left_to_itself_without_slack():
    job = Job(compute=36000, deadline=72000, restart_overhead=360)
    state = DeadlineState(3600, 3600 + 360, JobMode.SPOT, 0.0, is_spot_available=True, age=600)
    assert decide(as_planned(job), state, Always(JobMode.SPOT)).mode is JobMode.SPOT


def test_spot_is_not_held_where_there_is_none():
    job = Job(compute=3600, deadline=72000, restart_overhead=360)
    state = DeadlineState(3600, 72000, JobMode.IDLE, 0.0, is_spot_available=False, age=0)
    assert decide(as_planned(job), state, Always(JobMode.SPOT)).mode is JobMode.IDLE
    with pytest.raises(ValueError, match="report the loss first"):
        decide(
            as_planned(job),
            DeadlineState(3600, 72000, JobMode.SPOT, 0.0, is_spot_available=False, age=0),
            Always(JobMode.SPOT),
        )


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"compute": 0.0}, "compute must be a number above 0, not 0 s"),
        ({"compute": math.nan}, "compute must be a number above 0, not nan s"),
        ({"deadline": math.inf}, "deadline must be a number above 0, not inf s"),
        ({"restart_overhead": -1.0}, "restart_overhead must be a number ≥ 0, not -1"),
        ({"spot_price": math.nan}, "spot_price must be a number ≥ 0, not nan"),
        ({"deadline": 3700.0}, r"deadline must be at least compute \+ restart overhead = 1\.1 h, not 1\.0"),
    ],
)
def test_an_invalid_job_is_rejected(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Job(**{"compute": 3600.0, "deadline": 7200.0, "restart_overhead": 360.0, **kwargs})


LONG = Job(compute=36000, deadline=72000, restart_overhead=360)
REFUSED_FOR_AN_HOUR = DeadlineConstraints(LONG, JobEstimates(360, 360, 600, max_launch_delay=3600))


@pytest.mark.parametrize(("slack", "late"), [(360, False), (359, True)])
def test_a_deadline_that_cannot_be_met_is_late_at_once(slack, late):
    choice = decide(
        as_planned(LONG), DeadlineState(3600, 3600 + slack, JobMode.IDLE, 0.0, True, 0), Always(JobMode.IDLE)
    )
    assert (choice.mode, choice.is_late) == (JobMode.ON_DEMAND, late)


def test_at_a_lower_throughput_a_deadline_is_missed_earlier():
    slow = DeadlineConstraints(LONG, JobEstimates(360, 360, 360, min_throughput=0.7, likely_throughput=0.8))
    for remaining, late in ((4500, False), (4499, True)):
        state = DeadlineState(3600, remaining, JobMode.ON_DEMAND, 0.0, False, 0)
        assert decide(slow, state, Always(JobMode.IDLE)).is_late is late


@pytest.mark.parametrize("mode", [JobMode.SPOT, JobMode.ON_DEMAND])
def test_a_job_that_is_late_keeps_what_it_holds(mode):
    choice = decide(as_planned(LONG), DeadlineState(3600, 3000, mode, 0.0, True, 0), Always(JobMode.IDLE))
    assert (choice.mode, choice.is_late) == (mode, True)


@pytest.mark.parametrize(("up", "mode"), [(True, JobMode.SPOT), (False, JobMode.IDLE)])
def test_spot_is_chosen_while_on_demand_is_unavailable(up, mode):
    state = DeadlineState(3600, 3600 + 4000, JobMode.IDLE, 0.0, up, 0, is_on_demand_unavailable=True)
    assert decide(REFUSED_FOR_AN_HOUR, state, Always(JobMode.ON_DEMAND)).mode is mode


def test_the_reserve_covers_launch_delay_restart_late_detection_and_lost_work():
    job = Job(36000, 72000, 360, tick=120, checkpoint=1800)
    assert (
        DeadlineConstraints(job, JobEstimates(360, 360, 600, max_launch_delay=3600)).reserve
        == 60 + 1800 + 3600 + 600
    )


def test_the_policy_sees_less_time_and_more_work():
    seen_values = []

    class Watcher:
        name = "watcher"

        def choose(self, job, state):
            seen_values.append((job.compute, job.deadline, state.remaining_compute, state.remaining_seconds))
            return Choice(JobMode.ON_DEMAND)

    known = JobEstimates(360, 360, 600, max_launch_delay=3600, min_throughput=0.8)
    decide(
        DeadlineConstraints(LONG, known), DeadlineState(20000, 60000, JobMode.IDLE, 0.0, True, 0), Watcher()
    )
    reserved = 3600 + 600 - 360
    assert seen_values == [(45000, 72000 - reserved, 25000, 60000 - reserved)]


@pytest.mark.parametrize(
    ("slack", "boot_left", "mode"),
    [
        (4200, 0.0, JobMode.SPOT),
        (4199, 0.0, JobMode.ON_DEMAND),
        (600, 0.0, JobMode.ON_DEMAND),
        (599, 0.0, JobMode.SPOT),
        (4259, 60.0, JobMode.ON_DEMAND),
        (599, 60.0, JobMode.SPOT),
    ],
)
def test_spot_with_too_little_in_reserve_is_left_while_on_demand_is_sure_to_be_in_time(
    slack, boot_left, mode
):
    state = DeadlineState(3600, 3600 + slack, JobMode.SPOT, boot_left, True, 0)
    assert decide(REFUSED_FOR_AN_HOUR, state, Always(JobMode.SPOT)).mode is mode
