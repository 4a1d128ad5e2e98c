import json
import math
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.deadline.expected_cost import ExpectedJobCost
from lambdas.core.deadline.model import DeadlineState, Job, JobMode
from lambdas.core.deadline.thresholds import at, fitted, parse
from research.simulation.deadline.policies import DEFAULT, NAMES, build

HOUR = 3600.0
JOB = Job(24 * HOUR, 36 * HOUR, 1200)


def state(left, slack, mode, up, age, boot_left=0.0):
    return DeadlineState(left * HOUR, (left + slack) * HOUR, mode, boot_left, up, age * 60)


def tiny(**rows):
    """A table of one age bin but two for ``move``, one change-over of 10 minutes."""
    entry = {"spot_price": 0.3, "changeover": 10, "wait": [[60, 120]], "spot": [[20, 20], [20, 20]], **rows}
    entry = {"ripen": [[None, None]] * 2, "move": [[None, 200], [30, 60]], **entry}
    return parse({"grid": {"up": [0, 30], "down": [0], "compute": [60, 600]}, "tables": [entry]})


def test_a_value_lies_between_its_neighbours_and_grows_in_proportion_after_the_last():
    points, row = (60.0, 600.0), (60.0, 120.0)
    assert [at(points, row, compute) for compute in (0, 60, 330, 600, 1200)] == [60, 60, 90, 120, 240]
    assert at(points, (math.inf, 5.0), 300) == math.inf
    assert at(points, (math.inf, math.inf), 300) == math.inf


def test_between_change_overs_the_thresholds_are_mixed_and_above_the_last_scaled():
    raw = {"grid": {"up": [0], "down": [0], "compute": [60]}, "tables": []}
    for overhead, least in ((10, 20), (20, 50)):
        rows = {name: [[least]] for name in ("wait", "ripen", "spot", "move")}
        raw["tables"].append({"spot_price": 0.3, "changeover": overhead, **rows})
    table = parse(raw)
    assert [table.at(minutes, 0.3).wait[0][0] for minutes in (5, 10, 15, 20, 40)] == [20, 20, 35, 50, 100]


def test_thresholds_are_interpolated_between_prices_and_constant_beyond():
    raw = {"grid": {"up": [0], "down": [0], "compute": [60]}, "tables": []}
    for price, least in ((0.3, 20), (0.7, 60)):
        rows = {name: [[least]] for name in ("wait", "ripen", "spot", "move")}
        raw["tables"].append({"spot_price": price, "changeover": 10, **rows})
    table = parse(raw)
    found = [table.at(10, price).move[0][0] for price in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert found == pytest.approx([20, 20, 40, 60, 60])


def test_spot_that_saves_less_is_moved_to_with_more_slack():
    policy = build(DEFAULT)

    def chosen(price):
        situation = state(24, 6, JobMode.ON_DEMAND, True, 90)
        situation.price = price
        return policy.choose(JOB, situation).mode

    assert chosen(0.3) is JobMode.SPOT
    assert chosen(0.9) is JobMode.ON_DEMAND


def test_each_decision_reads_its_own_threshold():
    policy, job = ExpectedJobCost(tiny()), Job(600 * 60, 2000 * 60, 600)

    def chosen(slack_minutes, mode, up, age):
        situation = DeadlineState(36000, 36000 + slack_minutes * 60, mode, 0.0, up, age * 60)
        return policy.choose(job, situation).mode

    assert chosen(119, JobMode.IDLE, False, 5) is JobMode.ON_DEMAND
    assert chosen(120, JobMode.IDLE, False, 5) is JobMode.IDLE
    assert chosen(19, JobMode.IDLE, True, 5) is JobMode.ON_DEMAND
    assert chosen(20, JobMode.IDLE, True, 5) is JobMode.SPOT
    assert chosen(100, JobMode.ON_DEMAND, True, 29) is JobMode.ON_DEMAND
    assert chosen(100, JobMode.ON_DEMAND, True, 30) is JobMode.SPOT
    assert chosen(999, JobMode.ON_DEMAND, False, 5) is JobMode.ON_DEMAND
    assert chosen(0, JobMode.SPOT, True, 5) is JobMode.SPOT


def test_a_fresh_pool_is_left_to_ripen_where_there_is_slack():
    policy, job = ExpectedJobCost(tiny(ripen=[[500, 500], [None, None]])), Job(600 * 60, 2000 * 60, 600)
    fresh = policy.choose(job, DeadlineState(36000, 36000 + 600 * 60, JobMode.IDLE, 0.0, True, 60.0))
    assert (fresh.mode, fresh.valid_seconds) == (JobMode.IDLE, 29 * 60)
    ripe = policy.choose(job, DeadlineState(36000, 36000 + 600 * 60, JobMode.IDLE, 0.0, True, 1800.0))
    assert ripe.mode is JobMode.SPOT


@given(left=st.floats(0.1, 100), slack=st.floats(0.7, 60), age=st.floats(0, 3000), minutes=st.floats(1, 90))
def test_a_pool_that_proved_itself_is_left_for_no_more_slack_than_a_fresh_one(left, slack, age, minutes):
    job = Job(200 * HOUR, 400 * HOUR, minutes * 60)
    fresh = build(DEFAULT).choose(job, state(left, slack, JobMode.ON_DEMAND, True, 0.0))
    ripe = build(DEFAULT).choose(job, state(left, slack, JobMode.ON_DEMAND, True, 100_000.0))
    any_age = build(DEFAULT).choose(job, state(left, slack, JobMode.ON_DEMAND, True, age))
    assert fresh.mode is JobMode.ON_DEMAND or ripe.mode is JobMode.SPOT
    assert any_age.mode in (JobMode.ON_DEMAND, JobMode.SPOT)


def test_plenty_of_slack_waits_and_none_buys():
    policy = build(DEFAULT)
    assert policy.choose(JOB, state(24, 20, JobMode.IDLE, False, 10)).mode is JobMode.IDLE
    assert policy.choose(JOB, state(24, 0.5, JobMode.IDLE, False, 10)).mode is JobMode.ON_DEMAND


def test_the_committed_table_is_whole():
    table = fitted()
    assert sorted(table.by_price) == [0.3, 0.7, 0.9]
    tables = [item for by_overhead in table.by_price.values() for item in by_overhead.items()]
    for overhead, thresholds in tables:
        for name, bins in (
            ("wait", table.grid.down),
            *((n, table.grid.up) for n in ("ripen", "spot", "move")),
        ):
            rows = getattr(thresholds, name)
            assert len(rows) == len(bins), (overhead, name)
            assert all(len(row) == len(table.grid.compute) for row in rows), (overhead, name)
        # No decision may count on slack that the safety rules would take away.
        assert min(min(row) for row in thresholds.spot) >= 2 * overhead
        assert min(min(row) for row in thresholds.move) >= 2 * overhead
        assert min(min(row) for row in thresholds.wait) >= overhead


def test_the_table_holds_no_samples_of_the_traces():
    raw = json.loads(resources.files("lambdas.core.deadline").joinpath("thresholds.json").read_text())
    assert set(raw) == {"source", "fitted_on", "grid", "hazards_per_hour", "tables"}


def test_an_unknown_policy_is_named_with_the_allowed_ones():
    with pytest.raises(ValueError, match=f"'greed' is unknown; use {' or '.join(NAMES)}"):
        build("greed")
