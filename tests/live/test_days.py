"""Hours of a service with every fault on at once: what the controller promises holds at every tick.

For days of it, raise ``HOURS``: an hour takes about four seconds.
"""

from __future__ import annotations

from typing import Final

import pytest

from rehearsal.cloud.fault_injection import FaultInjection
from tests.apart import apart
from tests.live.days import played

HOURS: Final = 4
SEED: Final = 3
EVERYTHING: Final = FaultInjection(
    hook_at_notice=True,
    fleet_modifying_seconds=3.0,
    fleet_says_shortage=True,
    instances_lag_seconds=90.0,
    groups_lag_seconds=5.0,
    throttled=0.05,
    overlap=3,
    cancelled=0.3,
)


@pytest.mark.soak
def test_with_every_fault_on_at_once_the_promises_hold_at_every_tick() -> None:
    seen = apart(played, float(HOURS), SEED, EVERYTHING)
    assert seen["broken"] == []
    assert seen["counts"]["passes"] == 60 * HOURS
    assert seen["counts"]["released"] > 0
    # The faults did happen, and so did the market's.
    assert seen["counts"]["runs"] > seen["counts"]["passes"]
    assert seen["counts"]["refused calls"] > 0
    assert seen["account"]["interruption"] > 0
    assert seen["account"]["launch-on-demand"] > 0
