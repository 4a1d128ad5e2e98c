"""How a range is made: what it remembers, what it forgets, and what is too short."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_spot.forecast.ranges import LOOK_BACK, WEEK, Likely, Part, Spreads, across, after

parts = st.builds(Part, st.floats(0.05, 1.5), st.floats(0, 100), st.floats(0, 9), st.floats(0, 9))
histories = st.lists(parts, min_size=WEEK, max_size=2 * LOOK_BACK)


@given(histories)
def test_the_middle_lies_between_the_ends_and_within_what_was_seen(history: list[Part]) -> None:
    outlook = after(history, Spreads(0.3, 1.0))
    for likely in (outlook.cost, outlook.shortage):
        assert 0 <= likely.low <= likely.middle <= likely.high
    costs = [part.cost for part in history]
    assert min(costs) - 1e-9 <= outlook.cost.middle <= max(costs) + 1e-9
    assert outlook.cost.high == pytest.approx(outlook.cost.middle * exp(0.3))


@given(histories, parts)
def test_what_is_older_than_the_look_back_counts_nothing(history: list[Part], old: Part) -> None:
    seen = (history * LOOK_BACK)[-LOOK_BACK:]
    assert after([old, *seen]) == after(seen)


def test_costs_follow_the_last_days_and_shortage_the_weeks() -> None:
    before, now = Part(0.3, 0.0), Part(0.6, 10.0)
    outlook = after([before] * WEEK * 2 + [now] * (WEEK // 2))
    assert outlook.cost.middle > 0.5
    assert outlook.shortage.middle < WEEK * 10.0 / 2
    assert after([before] * WEEK).cost.middle == pytest.approx(0.3)


def test_less_than_a_week_is_refused() -> None:
    with pytest.raises(ValueError, match=r"6\.5 days of market are too short, at least 7 are needed"):
        after([Part(0.3, 0.0)] * (WEEK - 1))


def test_across_markets_the_ends_are_the_easy_and_the_hard_one() -> None:
    outlook = across(
        [[Part(cost, minutes, 2.0, 1.0)] * 4 for cost, minutes in ((0.4, 1), (0.9, 3), (0.3, 2))]
    )
    assert outlook.cost == pytest.approx(outlook.cost)
    assert (outlook.cost.low, outlook.cost.middle, outlook.cost.high) == pytest.approx((0.3, 0.4, 0.9))
    assert outlook.shortage == Likely(WEEK * 1.0, WEEK * 2.0, WEEK * 3.0)
    assert (outlook.losses, outlook.unannounced) == pytest.approx((4.0, 2.0))
