"""A job under a deadline in the rehearsed cloud: its steps go through agent and registry to the controller.

Many of them, beside the replay of the same, are ``make bench-deadline``.
"""

from __future__ import annotations

import pytest

from market.supply.trace import PoolTrace
from research.parts.deadline.stack import Scenario, figures, play
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
