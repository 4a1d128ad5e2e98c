"""The minimum number of workers for a load, and the wait that is learned from late requests."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling import staffing
from lambdas.core.scaling.batches import BatchTime, WorkerSpeed
from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from lambdas.core.scaling.staffed_wait import MAX_LOG_FACTOR, TRACKED_SHARE, StaffedWait
from lambdas.core.scaling.staffing import (
    LATE_SHARE,
    Demand,
    all_busy_probability,
    late_probability,
    min_workers,
)

WORKER_RATE = 0.25
SPEED = WorkerSpeed(((1.0, BatchTime(0.0, 1 / WORKER_RATE)),))


def erlang_c(load: float, workers: int) -> float:
    """Return the probability to wait in M/M/n, by Erlang B's recursion."""
    blocked = 1.0
    for n in range(1, workers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / workers * (1 - blocked))


@pytest.mark.parametrize(("load", "workers"), [(4, 5), (4, 8), (20, 22), (20, 28), (100, 104), (100, 120)])
def test_the_probability_that_all_are_busy_matches_erlang_c(load: float, workers: int) -> None:
    assert all_busy_probability(load, workers) == pytest.approx(erlang_c(load, workers), abs=0.06)


@pytest.mark.parametrize(
    ("load", "workers", "wait"), [(20, 22, 1), (20, 24, 1), (20, 22, 10), (100, 104, 1), (8, 10, 1)]
)
def test_in_the_long_run_the_wait_matches_erlang_c(
    load: float, workers: int, wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staffing, "FORECAST_ERROR", 0.0)
    exact = erlang_c(load, workers) * math.exp(-(workers - load) * WORKER_RATE * wait)
    assert late_probability(Demand(load * WORKER_RATE, 0, 1e6), SPEED, workers, wait) == pytest.approx(
        exact, abs=0.06
    )


demands = st.builds(Demand, st.floats(0, 50), st.floats(0, 5000), st.floats(60, 900))
waits = st.floats(1, 600)


@given(demands, waits)
def test_min_workers_is_the_minimum_for_the_wait_and_the_load(demand: Demand, wait: float) -> None:
    max_workers = 2000
    workers = min_workers(lambda _: demand, SPEED, wait, max_workers)
    assert workers * WORKER_RATE >= demand.rate - 1e-9
    if workers < max_workers:
        assert late_probability(demand, SPEED, workers, wait) <= LATE_SHARE
    if (workers - 1) * WORKER_RATE > demand.rate:
        assert late_probability(demand, SPEED, workers - 1, wait) > LATE_SHARE


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
    for nonsense in ("[9.0,5.0]", "[0.0,-1.0]", "[NaN,1.0]", '["1"]'):
        assert parse(text.replace("[1.0,5.0]", nonsense)) == ScalingMemory()
    assert [parse(text) for text in ("", "{}", "[]", '{"rates":1}', "null")] == [ScalingMemory()] * 5
    for row in ("[1]", "[1,0,7]"):  # of another version
        assert parse(text.replace("[1.0,5.0]", row)).staffed_wait == StaffedWait(1.0)
