"""A job under a deadline in the rehearsed cloud: its steps go through agent and registry to the controller.

Many of them, beside the replay of the same, are ``make bench-deadline``.
"""

from __future__ import annotations

import math

import pytest

from bench.parts.deadline.stack import Scenario, figures, play
from bench.parts.deadline.stalls import STABLE, bought, hopeless, said_lost
from market.supply.trace import PoolTrace
from rehearsal.machines.pace import Slowdown
from tests.apart import apart


@pytest.mark.soak
def test_a_job_that_loses_spot_makes_its_deadline_through_the_controller() -> None:
    # Spot for 25 minutes, none for 15, and then again.
    pool = PoolTrace("up-down-up", 300.0, (1,) * 5 + (0,) * 3 + (1,) * 60)
    job = apart(play, Scenario(pool, hours=0.6, deadline_hours=4.5))
    assert not job.late
    assert job.interruptions == 1
    assert job.changeovers >= 2
    assert 60 < job.restart_seconds < 600
    # Once its progress is known it waits for spot, for there is slack: no on-demand.
    reasons = [reason for _, _, reason in job.decisions]
    assert reasons[0] == "progress is not measured yet"
    assert not any("fallback" in order for _, orders, _ in job.decisions for order in orders)
    assert job.cost < 0.4
    job_figures = figures([job])
    assert (job_figures["stack_jobs"], job_figures["stack_misses"]) == (1, 0)


@pytest.mark.soak
def test_a_job_that_stands_still_is_bought_on_demand_while_the_deadline_can_still_be_met() -> None:
    # Its spot is never lost: but for the stall no on-demand would be bought.
    scenario = Scenario(STABLE, 0.5, 4.0, (Slowdown(0.4, 2.4),))
    job = apart(play, scenario)
    bought_at = bought(job)
    assert bought_at is not None
    assert 0.4 < bought_at < scenario.deadline_hours - scenario.hours / 2
    assert not job.late
    assert not said_lost(job)


@pytest.mark.soak
def test_a_job_that_gets_too_slow_is_declared_lost_once_and_at_once() -> None:
    # The agent measures over an hour: from half an hour of slowness on it knows of nothing else.
    scenario = Scenario(STABLE, 1.0, 3.0, (Slowdown(0.5, math.inf, 0.05),))
    job = apart(play, scenario)
    [lost_at] = said_lost(job)
    assert 0.5 < lost_at < 1.6
    assert lost_at < hopeless(scenario)
    assert job.late
