"""The staffed wait follows the share of late requests."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from lambdas.core.scaling.staffed_wait import MAX_LOG_FACTOR, TRACKED_SHARE, StaffedWait
from lambdas.core.scaling.staffing import LATE_SHARE


@pytest.mark.parametrize("bias", [0.7, 1.5, 3.0])
def test_in_the_long_run_fewer_than_one_request_in_a_hundred_are_late(bias: float) -> None:
    chance, wait, late, minutes = random.Random(1), StaffedWait(), 0, 20_000
    for minute in range(minutes):
        # The share of late requests grows with the staffed wait, by another law than assumed.
        is_late = chance.random() < min(1.0, 0.01 * (wait.factor / bias) ** 2)
        wait = wait.update(5.0, late=is_late)
        late += is_late and minute >= minutes // 2
    assert late / (minutes / 2) == pytest.approx(TRACKED_SHARE, rel=0.25)
    assert TRACKED_SHARE < LATE_SHARE


def test_a_busy_minute_counts_for_more_than_a_quiet_one() -> None:
    usual = StaffedWait(usual_rate=5.0)
    busy, quiet = (usual.update(rate, late=True).log_factor for rate in (10.0, 1.0))
    assert busy < quiet < 0
    assert usual.update(0.0, late=True) == usual


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=300))
def test_it_stays_within_its_bounds_and_survives_as_text(minutes: list[tuple[float, bool]]) -> None:
    wait = StaffedWait()
    for rate, late in minutes:
        wait = wait.update(rate, late=late)
    assert -MAX_LOG_FACTOR <= wait.log_factor <= MAX_LOG_FACTOR
    assert parse(dump(ScalingMemory(staffed_wait=wait))).staffed_wait == wait


def test_impossible_values_reset_the_state() -> None:
    text = dump(ScalingMemory(staffed_wait=StaffedWait(1.0, 5.0)))
    assert parse(text).staffed_wait == StaffedWait(1.0, 5.0)
    for nonsense in ("[9.0,5.0]", "[0.0,-1.0]", "[NaN,1.0]", "[1]"):
        assert parse(text.replace("[1.0,5.0]", nonsense)) == ScalingMemory()
