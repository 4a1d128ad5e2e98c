"""How many workers a load needs, judged by the exact formulas of the textbook."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling import staffing
from lambdas.core.scaling.staffing import LATE_SHARE, Demand, all_busy, late, needed

EACH = 0.25


def erlang_c(load: float, workers: int) -> float:
    """The chance to wait in M/M/n, by Erlang B's recursion."""
    blocked = 1.0
    for n in range(1, workers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / workers * (1 - blocked))


@pytest.mark.parametrize(("load", "workers"), [(4, 5), (4, 8), (20, 22), (20, 28), (100, 104), (100, 120)])
def test_the_chance_that_all_are_busy_is_erlangs(load: float, workers: int) -> None:
    assert all_busy(load, workers) == pytest.approx(erlang_c(load, workers), abs=0.06)


@pytest.mark.parametrize(
    ("load", "workers", "wait"), [(20, 22, 1), (20, 24, 1), (20, 22, 10), (100, 104, 1), (8, 10, 1)]
)
def test_in_the_long_run_the_wait_is_erlangs(
    load: float, workers: int, wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staffing, "DOUBT", 0.0)
    exact = erlang_c(load, workers) * math.exp(-(workers - load) * EACH * wait)
    assert late(Demand(load * EACH, 0, 1e6), EACH, workers, wait) == pytest.approx(exact, abs=0.06)


def test_a_queue_that_is_there_is_worked_off_in_time() -> None:
    calm, jam = Demand(4, 0, 240), Demand(4, 600, 240)
    # 600 more requests in 240 s are 2.5 a second: ten workers, less what may still wait
    assert needed(jam, EACH, 60, 200) >= needed(calm, EACH, 60, 200) + 5


demands = st.builds(Demand, st.floats(0, 50), st.floats(0, 5000), st.floats(60, 900))
waits = st.floats(1, 600)


@given(demands, waits)
def test_needed_is_the_fewest_that_keep_the_wait_and_carry_the_load(demand: Demand, wait: float) -> None:
    most = 2000
    workers = needed(demand, EACH, wait, most)
    assert workers * EACH >= demand.rate - 1e-9
    if workers < most:
        assert late(demand, EACH, workers, wait) <= LATE_SHARE
    if (workers - 1) * EACH > demand.rate:
        assert late(demand, EACH, workers - 1, wait) > LATE_SHARE


@given(demands, waits, st.floats(1, 10))
def test_who_may_wait_longer_needs_no_more(demand: Demand, wait: float, times: float) -> None:
    assert needed(demand, EACH, wait * times, 2000) <= needed(demand, EACH, wait, 2000)


def test_nobody_is_needed_for_nothing() -> None:
    assert needed(Demand(0, 0, 240), EACH, 60, 10) == 0
