"""Ranges of a forecast, and the replays that they are made of."""

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
    SlotForecast,
    Spreads,
    across,
    after,
    cost_level,
)
from gpu_spot.forecast.replayed import Question, forecast_slot, parts
from market.supply.trace import PoolTrace

# A group without a fallback costs nothing while Spot is missing.
PARTS = st.builds(Part, st.floats(0.0, 1.5), st.floats(0, 100), st.floats(0, 9), st.floats(0, 9))
histories = st.lists(PARTS, min_size=WEEK, max_size=2 * HISTORY_PARTS)


@given(histories)
def test_the_middle_is_within_the_range_and_the_history(history: list[Part]) -> None:
    slot_forecast = after(history, Spreads(0.3, 1.0))
    for likely in (slot_forecast.cost, slot_forecast.shortage):
        assert 0 <= likely.low <= likely.middle <= likely.high
    costs = [part.cost for part in history]
    assert min(costs) - 1e-9 <= slot_forecast.cost.middle <= max(costs) + 2e-6
    assert slot_forecast.cost.high == pytest.approx(slot_forecast.cost.middle * exp(0.3))


@given(histories, PARTS)
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


def test_idle_parts_lower_the_level_by_their_share() -> None:
    half = [Part(0.3, 0.0), Part(0.0, 720.0)] * WEEK
    assert cost_level(half) == pytest.approx(0.15, rel=0.15)
    closed_at_last = [Part(0.3, 0.0)] * WEEK + [Part(0.0, 720.0)] * WEEK
    assert 0.02 < cost_level(closed_at_last) < 0.15


def test_less_than_a_week_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the recorded market has 6\.5 days, at least 7 are required"):
        after([Part(0.3, 0.0)] * (WEEK - 1))


def test_across_markets_the_range_is_around_the_middling_one() -> None:
    slot_forecast = across(
        [
            [Part(cost, minutes, 2.0, 1.0, 0.2, 3.0)] * WEEK
            for cost, minutes in ((0.4, 1), (0.9, 3), (0.3, 2))
        ],
        Spreads(cost=0.5, shortage=1.0, losses=3.0),
    )
    ends = (0.4 / exp(0.5), 0.4, 0.4 * exp(0.5))
    assert slot_forecast.cost == Range(*map(pytest.approx, ends))
    root = (WEEK * 2.0) ** 0.5
    assert slot_forecast.shortage == Range(*map(pytest.approx, ((root - 1) ** 2, root**2, (root + 1) ** 2)))
    assert slot_forecast.losses == Range(0.0, pytest.approx(4.0), pytest.approx(25.0))
    assert (slot_forecast.unannounced, slot_forecast.none_ready) == pytest.approx((2.0, 6.0))
    assert slot_forecast.spot_cost == pytest.approx(0.2)


@given(st.floats(0.1, 1), st.floats(1, 5), st.floats(0.05, 0.4))
def test_unknown_prices_widen_the_range_and_known_ones_do_not(low: float, high: float, spot: float) -> None:
    week = SlotForecast(Range(0.3, 0.4, 0.6), Range(0, 1, 2), Range(0, 1, 2), 0.0, spot)
    assert week.cost_at(Range(1.0, 1.0, 1.0)) == week.cost
    wide = week.cost_at(Range(low, 1.0, high))
    assert wide.low <= week.cost.low
    assert wide.middle == week.cost.middle
    assert wide.high >= max(week.cost.high, wide.middle + spot * (high - 1))


HOUR = 60


def market(*samples: tuple[int, ...]) -> tuple[PoolTrace, ...]:
    return tuple(PoolTrace(f"pool-{number}", 60.0, one) for number, one in enumerate(samples))


def asked(shares: tuple[float, ...], **more: object) -> Question:
    return Question(slots=2, shares=shares, policy="expected-cost", **more)  # type: ignore[arg-type]


def test_a_market_without_outages_costs_the_spot_price() -> None:
    always = (1,) * 25 * HOUR
    assert parts(asked((0.25,)), market(always)) == [Part(0.25, 0.0, spot_cost=0.25)] * 2


def test_spot_without_savings_is_not_launched() -> None:
    coming_and_going = ((1,) * HOUR + (0,) * HOUR) * 13
    found = parts(asked((1.2,)), market(coming_and_going))
    assert [part.cost for part in found] == pytest.approx([1.0, 1.0])
    assert sum(part.losses for part in found) == 0


def test_without_a_fallback_a_market_that_closes_is_missed_by_the_minute() -> None:
    half = (1,) * 13 * HOUR + (0,) * 12 * HOUR
    open_, closed = parts(asked((0.3,), fallback=False), market(half))
    assert (open_.cost, open_.shortage) == pytest.approx((0.3, 0.0))
    assert closed.shortage == pytest.approx(12 * 60)
    assert closed.cost == 0.0
    assert closed.losses == 1.0  # each slot once
    assert (open_.none_ready, closed.none_ready) == (0.0, pytest.approx(12 * 60))
    assert (open_.spot_cost, closed.spot_cost) == pytest.approx((0.3, 0.0))


def test_the_cheaper_type_of_a_zone_is_launched_and_zones_stay_balanced() -> None:
    always = (1,) * 25 * HOUR
    in_one = parts(asked((0.8, 0.2), zones=(0, 0)), market(always, always))
    in_two = parts(asked((0.8, 0.2), zones=(0, 1)), market(always, always))
    assert in_one[1].cost == pytest.approx(0.2)
    assert in_two[1].cost == pytest.approx(0.5)


def test_a_market_without_spot_is_forecast_without_a_fallback_too() -> None:
    empty = market((0,) * 8 * 24 * 60)
    never = forecast_slot(Question(1, (0.3,), "expected-cost", fallback=False), empty)
    assert never.cost.high == pytest.approx(0.0, abs=1e-5)
    assert (never.spot_cost, never.shortage.middle) == (0.0, pytest.approx(WEEK * 12 * 60))
