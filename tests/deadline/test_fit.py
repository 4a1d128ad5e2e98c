import functools
import itertools
import json
import math

import numpy as np
import pytest

from lambdas.core.deadline.thresholds import parse
from research.fit.deadline import (
    DOWN_EDGES,
    SPOT_PRICES,
    TABLE,
    UP_EDGES,
    Hazards,
    compact,
    fit_hazards,
    read_traces,
    shipped_hazards,
    solve,
    table,
    thresholds,
)
from research.simulation.deadline.pool import PoolRuns


def pool_of(*lengths: int) -> PoolRuns:
    ups = itertools.cycle([True, False])
    return PoolRuns.of_ticks(
        "pool", [up for length, up in zip(lengths, ups, strict=False) for _ in range(length)]
    )


def constant(lose: float, regain: float) -> Hazards:
    return Hazards(np.full(len(UP_EDGES), lose / 60), np.full(len(DOWN_EDGES), regain / 60))


def test_hazards_are_events_by_exposure_in_each_bin_of_age():
    # Runs with spot of 5 and 15 minutes in turn: one ends in the first 10 minutes, one in the next 10.
    hazards = fit_hazards([pool_of(30, *([30, 5, 30, 15] * 300), 30)])
    assert hazards.lose[0] == pytest.approx(1 / 15, rel=0.02)
    assert hazards.lose[1] == pytest.approx(1 / 5, rel=0.05)
    assert hazards.regain[2] == pytest.approx(1 / 10, rel=0.05)
    assert hazards.regain[0] < 0.01


def test_the_induction_decides_as_a_plain_recursion_over_what_can_happen():
    """Hazards that do not depend on age: the recursion knows time left, compute left and what is held."""
    step, boot, price = 10, 2, 0.3
    lose, regain = (float(-np.expm1(-rate / 60 * step)) for rate in (0.8, 1.5))

    def then(up: bool, value) -> float:
        """What is to be expected of a step after which the pool may have changed."""
        chance = lose if up else regain
        return (1 - chance) * value(up) + chance * value(not up)

    @functools.cache
    def idle(left: int, compute: int, up: bool) -> float:
        on_spot = take(left, compute) if up else math.inf
        return min(wait(left, compute, up), start(left, compute, up), on_spot)

    @functools.cache
    def wait(left: int, compute: int, up: bool) -> float:
        if compute == 0:
            return 0.0
        return math.inf if left == 0 else then(up, lambda now: idle(left - 1, compute, now))

    def start(left: int, compute: int, up: bool) -> float:
        return stay(left, compute + boot, up) if compute else 0.0

    @functools.cache
    def stay(left: int, work: int, up: bool) -> float:
        if work == 0:
            return 0.0
        if left == 0:
            return math.inf
        return step + then(up, lambda now: demand(left - 1, work - 1, now))

    def demand(left: int, work: int, up: bool) -> float:
        return min(stay(left, work, up), take(left, work) if up else math.inf)

    def take(left: int, compute: int) -> float:
        return spot(left, compute, boot)

    @functools.cache
    def spot(left: int, compute: int, booting: int) -> float:
        if compute == 0:
            return 0.0
        if left == 0:
            return math.inf
        after = (compute, booting - 1) if booting else (compute - 1, 0)
        lost = idle(left - 1, after[0], False)
        return price * step + (1 - lose) * spot(left - 1, *after) + lose * lost

    decisions, slack = solve(constant(0.8, 1.5), boot * step, step, price, 8 * step, 20 * step)
    seen = set()
    for compute, left in itertools.product(range(1, 7), range(1, 20)):
        right = {
            "wait": (wait(left, compute, False), start(left, compute, False)),
            "spot": (take(left, compute), start(left, compute, True)),
            "move": (take(left, compute), stay(left, compute, True)),
        }
        for name, (one, other) in right.items():
            expected = one < other - 1e-6
            assert (decisions[name][:, compute, left] == expected).all(), (name, compute, left)
            seen.add((name, expected))
    assert len(seen) == 6
    assert slack == 20


def test_the_table_can_be_written_and_read():
    raw = table([pool_of(*([50, 40] * 40))], [60], [0.3])
    assert parse(json.loads(compact(raw))).at(60, 0.3) == parse(raw).at(60, 0.3)


def test_what_is_shipped_is_what_the_shipped_hazards_come_to():
    """Of 24 tables the three that are solved fastest; `make fit` solves all, and fits the hazards."""
    shipped = json.loads(TABLE.read_text("utf-8"))
    hazards = shipped_hazards(shipped["hazards_per_hour"])
    for price in SPOT_PRICES:
        solved = json.loads(json.dumps(thresholds(hazards, 60, price)))
        assert solved in shipped["tables"], price


def test_the_shipped_hazards_are_those_of_the_traces(traces):
    if traces is None:
        pytest.skip("GPU_SPOT_TRACES is not set")
    pools = [PoolRuns.of_trace(trace) for trace in read_traces(traces).values()]
    shipped = shipped_hazards(json.loads(TABLE.read_text("utf-8"))["hazards_per_hour"])
    fitted = fit_hazards(pools)
    assert fitted.lose.tolist() == shipped.lose.tolist()
    assert fitted.regain.tolist() == shipped.regain.tolist()
