"""The load that is expected: of the last minutes, and of the time of day."""

from __future__ import annotations

import pytest

from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.forecast import forecast
from lambdas.core.scaling.profile import BINS, Profile, bin_of

MONDAY = 4 * 86400.0
EVEN = Dispersion()


def lived(days: int, rate_at_six: float) -> Profile:
    """A profile after whole days at one request a second, more from 6:00 to 6:30."""
    profile = Profile()
    for minute in range(days * 1440 + 1):
        now = MONDAY + minute * 60
        at_six = 21600 <= now % 86400 < 23400
        profile = profile.seen(now, rate_at_six if at_six else 1.0)
    return profile


def last(now: float, rates: list[float]) -> list[tuple[float, float]]:
    return [(now - 60 * (len(rates) - 1 - k), rate) for k, rate in enumerate(rates)]


def after(newest: float, dispersion: Dispersion = EVEN) -> float:
    """What is expected after two minutes at a rate and 13 at 4."""
    return forecast(last(MONDAY, [4.0] * 13 + [newest] * 2), Profile(), dispersion, MONDAY, MONDAY)


def test_the_week_has_a_place_for_every_quarter() -> None:
    bins = {bin_of(MONDAY + quarter * 900) for quarter in range(7 * 96)}
    assert bins == set(range(BINS))
    assert bin_of(MONDAY) == bin_of(MONDAY + 4 * 86400) == 0
    assert bin_of(MONDAY + 5 * 86400) == 96


def test_what_comes_every_day_is_ordered_before_it_comes() -> None:
    profile = lived(2, 2.5)
    now = MONDAY + 2 * 86400 + 21600 - 300
    usual = last(now, [1.0] * 15)
    assert forecast(usual, profile, EVEN, now, now + 480) == pytest.approx(2.5)
    assert forecast(usual, profile, EVEN, now - 3600, now - 3120) == pytest.approx(1.0)
    assert forecast(usual, Profile(), EVEN, now, now + 480) == pytest.approx(1.0)


def test_a_day_that_is_twice_as_busy_rises_twice_as_high() -> None:
    profile = lived(2, 2.5)
    now = MONDAY + 2 * 86400 + 21600 - 300
    assert forecast(last(now, [2.0] * 15), profile, EVEN, now, now + 480) == pytest.approx(5.0)


def test_a_usual_day_raises_the_load_of_now_at_most_threefold() -> None:
    now = MONDAY + 2 * 86400 + 21600 - 300
    assert forecast(last(now, [1.0] * 15), lived(2, 50.0), EVEN, now, now + 480) == pytest.approx(3.0)


def test_newest_minutes_count_alone_where_they_contradict() -> None:
    assert forecast(last(MONDAY, [4.0] * 13 + [8.0] * 2), Profile(), EVEN, MONDAY, MONDAY) == pytest.approx(
        8.0
    )
    assert forecast(last(MONDAY, [4.0] * 13 + [0.0] * 2), Profile(), EVEN, MONDAY, MONDAY) == pytest.approx(
        0.0
    )
    noise = forecast(last(MONDAY, [4.0] * 13 + [4.3] * 2), Profile(), EVEN, MONDAY, MONDAY)
    assert noise == pytest.approx((13 * 4.0 + 2 * 4.3) / 15)


def test_what_differs_no_more_than_minutes_do_here_is_no_other_load() -> None:
    clumped = Dispersion(0.02, 1.0)
    assert after(5.0) == pytest.approx(5.0)
    assert after(5.0, clumped) == pytest.approx((13 * 4.0 + 2 * 5.0) / 15)
    assert after(8.0, clumped) == pytest.approx(8.0)
