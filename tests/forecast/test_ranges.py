"""Ranges of a forecast: decay of old history, and histories that are too short."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_spot.forecast.ranges import (
    HISTORY_PARTS,
    WEEK,
    CostLevel,
    Part,
    Range,
    Spreads,
    across,
    after,
    cost_level,
)

parts = st.builds(Part, st.floats(0.05, 1.5), st.floats(0, 100), st.floats(0, 9), st.floats(0, 9))
histories = st.lists(parts, min_size=WEEK, max_size=2 * HISTORY_PARTS)


@given(histories)
def test_the_middle_is_within_the_range_and_the_history(history: list[Part]) -> None:
    slot_forecast = after(history, Spreads(0.3, 1.0))
    for likely in (slot_forecast.cost, slot_forecast.shortage):
        assert 0 <= likely.low <= likely.middle <= likely.high
    costs = [part.cost for part in history]
    assert min(costs) - 1e-9 <= slot_forecast.cost.middle <= max(costs) + 1e-9
    assert slot_forecast.cost.high == pytest.approx(slot_forecast.cost.middle * exp(0.3))


@given(histories, parts)
def test_history_beyond_the_limit_is_ignored(history: list[Part], old: Part) -> None:
    seen = (history * HISTORY_PARTS)[-HISTORY_PARTS:]
    assert after([old, *seen]) == after(seen)


def test_costs_follow_the_last_days_and_shortage_the_weeks() -> None:
    before, now = Part(0.3, 0.0), Part(0.6, 10.0)
    slot_forecast = after([before] * WEEK * 2 + [now] * (WEEK // 2))
    assert slot_forecast.cost.middle > (before.cost + now.cost) / 2  # half a week outweighs two weeks
    assert slot_forecast.shortage.middle < WEEK * 10.0 / 2
    assert after([before] * WEEK).cost.middle == pytest.approx(0.3)


def test_the_rest_of_the_history_tempers_the_last_days() -> None:
    history = [Part(0.3, 0.0)] * WEEK * 3 + [Part(0.6, 0.0)] * WEEK
    only_recent, all_alike = CostLevel(WEEK / 4, 1.0), CostLevel(WEEK / 4, 0.0)
    assert cost_level(history, only_recent) == pytest.approx(0.6, rel=0.03)
    assert cost_level(history, all_alike) == pytest.approx(0.375)
    assert 0.375 < cost_level(history) < 0.57


def test_less_than_a_week_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the recorded market has 6\.5 days, at least 7 are required"):
        after([Part(0.3, 0.0)] * (WEEK - 1))


def test_across_markets_the_ends_are_the_easy_and_the_hard_one() -> None:
    slot_forecast = across(
        [[Part(cost, minutes, 2.0, 1.0)] * 4 for cost, minutes in ((0.4, 1), (0.9, 3), (0.3, 2))]
    )
    assert slot_forecast.cost == pytest.approx(slot_forecast.cost)
    assert (slot_forecast.cost.low, slot_forecast.cost.middle, slot_forecast.cost.high) == pytest.approx(
        (0.3, 0.4, 0.9)
    )
    assert slot_forecast.shortage == Range(WEEK * 1.0, WEEK * 2.0, WEEK * 3.0)
    assert (slot_forecast.losses, slot_forecast.unannounced) == pytest.approx((4.0, 2.0))
