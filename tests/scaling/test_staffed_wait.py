"""The wait that is staffed for follows how the allowed one was kept."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from lambdas.core.scaling.staffed_wait import MOST, StaffedWait


@pytest.mark.parametrize("bias", [0.7, 1.5, 3.0])
def test_in_the_long_run_one_request_in_a_hundred_is_late(bias: float) -> None:
    chance, wait, late, minutes = random.Random(1), StaffedWait(), 0, 20_000
    for minute in range(minutes):
        # A service that is late the more often the longer a wait is staffed for, by another law than assumed.
        is_late = chance.random() < min(1.0, 0.01 * (wait.factor / bias) ** 2)
        wait = wait.seen(5.0, late=is_late)
        late += is_late and minute >= minutes // 2
    assert late / (minutes / 2) == pytest.approx(0.01, rel=0.25)


def test_a_busy_minute_counts_for_more_than_a_quiet_one() -> None:
    usual = StaffedWait(usual=5.0)
    busy, quiet = (usual.seen(rate, late=True).log for rate in (10.0, 1.0))
    assert busy < quiet < 0
    assert usual.seen(0.0, late=True) == usual


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=300))
def test_it_stays_within_its_bounds_and_survives_as_text(minutes: list[tuple[float, bool]]) -> None:
    wait = StaffedWait()
    for rate, late in minutes:
        wait = wait.seen(rate, late=late)
    assert -MOST <= wait.log <= MOST
    assert parse(dump(ScalingMemory(staffed=wait))).staffed == wait


def test_what_nobody_can_have_learned_is_forgotten() -> None:
    text = dump(ScalingMemory(staffed=StaffedWait(1.0, 5.0)))
    assert parse(text).staffed == StaffedWait(1.0, 5.0)
    for nonsense in ("[9.0,5.0]", "[0.0,-1.0]", "[NaN,1.0]", "[1]"):
        assert parse(text.replace("[1.0,5.0]", nonsense)) == ScalingMemory()
