"""The load forecast from the last minutes and the time of day, and the dispersion of arrivals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.forecast import forecast
from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from lambdas.core.scaling.profile import BINS, Profile, bin_of
from research.simulation.load.shapes import LoadShape

MONDAY = 4 * 86400.0
POISSON = Dispersion()


def profile_after(days: int, rate_at_six: float) -> Profile:
    """Return the profile after whole days at one request a second, more from 6:00 to 6:30."""
    profile = Profile()
    for minute in range(days * 1440 + 1):
        now = MONDAY + minute * 60
        at_six = 21600 <= now % 86400 < 23400
        profile = profile.update(now, rate_at_six if at_six else 1.0)
    return profile


def arrivals_until(now: float, rates: list[float]) -> list[tuple[float, float]]:
    return [(now - 60 * (len(rates) - 1 - k), rate) for k, rate in enumerate(rates)]


def forecast_after_two_minutes(newest: float, dispersion: Dispersion = POISSON) -> float:
    """Return the forecast after 13 minutes at 4 requests a second and two at another rate."""
    return forecast(arrivals_until(MONDAY, [4.0] * 13 + [newest] * 2), Profile(), dispersion, MONDAY, MONDAY)


def test_every_quarter_hour_of_a_week_has_a_bin() -> None:
    bins = {bin_of(MONDAY + quarter * 900) for quarter in range(7 * 96)}
    assert bins == set(range(BINS))
    assert bin_of(MONDAY) == bin_of(MONDAY + 4 * 86400) == 0
    assert bin_of(MONDAY + 5 * 86400) == 96


def test_a_daily_rise_is_forecast_before_it_starts() -> None:
    profile = profile_after(2, 2.5)
    now = MONDAY + 2 * 86400 + 21600 - 300
    usual = arrivals_until(now, [1.0] * 15)
    assert forecast(usual, profile, POISSON, now, now + 480) == pytest.approx(2.5)
    assert forecast(usual, profile, POISSON, now - 3600, now - 3120) == pytest.approx(1.0)
    assert forecast(usual, Profile(), POISSON, now, now + 480) == pytest.approx(1.0)


def test_a_day_with_twice_the_load_has_twice_the_forecast() -> None:
    profile = profile_after(2, 2.5)
    now = MONDAY + 2 * 86400 + 21600 - 300
    assert forecast(arrivals_until(now, [2.0] * 15), profile, POISSON, now, now + 480) == pytest.approx(5.0)


def test_a_load_that_changed_in_the_newest_minute_is_that_minutes() -> None:
    risen, usual = (arrivals_until(MONDAY, [4.0] * 14 + [newest]) for newest in (8.0, 4.6))
    assert forecast(risen, Profile(), POISSON, MONDAY, MONDAY) == pytest.approx(8.0)
    assert forecast(usual, Profile(), POISSON, MONDAY, MONDAY) < 4.2  # by chance


def test_the_profile_raises_the_forecast_at_most_threefold() -> None:
    now = MONDAY + 2 * 86400 + 21600 - 300
    assert forecast(
        arrivals_until(now, [1.0] * 15), profile_after(2, 50.0), POISSON, now, now + 480
    ) == pytest.approx(3.0)


def test_the_last_minutes_count_alone_if_they_differ_significantly() -> None:
    assert forecast(
        arrivals_until(MONDAY, [4.0] * 13 + [8.0] * 2), Profile(), POISSON, MONDAY, MONDAY
    ) == pytest.approx(8.0)
    assert forecast(
        arrivals_until(MONDAY, [4.0] * 13 + [0.0] * 2), Profile(), POISSON, MONDAY, MONDAY
    ) == pytest.approx(0.0)
    noise = forecast(arrivals_until(MONDAY, [4.0] * 13 + [4.3] * 2), Profile(), POISSON, MONDAY, MONDAY)
    assert noise == pytest.approx((13 * 4.0 + 2 * 4.3) / 15)


def test_a_difference_within_the_dispersion_is_not_a_change_of_load() -> None:
    clumped = Dispersion(0.02, 1.0)
    assert forecast_after_two_minutes(5.0) == pytest.approx(5.0)
    assert forecast_after_two_minutes(5.0, clumped) == pytest.approx((13 * 4.0 + 2 * 5.0) / 15)
    assert forecast_after_two_minutes(8.0, clumped) == pytest.approx(8.0)


def dispersion_after(rates: list[float], so_far: Dispersion | None = None) -> Dispersion:
    """Return the dispersion after these minutes."""
    dispersion = so_far or Dispersion()
    for previous, rate in pairwise(rates):
        dispersion = dispersion.update(previous, rate)
    return dispersion


def day_of_rates(clumping: float, bursts: float = 0.0) -> list[float]:
    """Return the requests a second of each minute of a day with a daily curve, timers and a drift."""
    shape = LoadShape("of a test", clumping=clumping, bursts=bursts, silences=0)
    return [float(rate) for rate in shape.arrivals(1, 7).reshape(-1, 60).mean(axis=1)]


@pytest.mark.parametrize("clumping", [0.0, 0.3, 0.6])
def test_overdispersion_is_measured_whatever_the_daily_curve(clumping: float) -> None:
    # Variance per 10 s averages to a sixth per minute.
    assert dispersion_after(day_of_rates(clumping)).share == pytest.approx(
        clumping**2 / 6, rel=0.25, abs=0.001
    )


def test_bursts_of_minutes_are_not_overdispersion() -> None:
    assert dispersion_after(day_of_rates(0.3, bursts=8.0)).share == pytest.approx(0.3**2 / 6, rel=0.35)


def test_after_an_outage_bursts_are_still_significant() -> None:
    dispersion = dispersion_after([0.0, 500.0, 0.0, 6.0], dispersion_after(day_of_rates(0.3)))
    assert dispersion.share <= 1 / 8
    assert 3 * dispersion.variance(720.0, 120.0) ** 0.5 < 0.8 * 720.0


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_the_share_is_between_0_and_an_eighth(rates: list[float]) -> None:
    dispersion = dispersion_after(rates)
    assert 0 <= dispersion.share <= 1 / 8
    assert dispersion.variance(10.0, 60.0) >= 10.0


def test_a_longer_interval_varies_less() -> None:
    dispersion = dispersion_after(day_of_rates(0.6))
    minute, hour = dispersion.variance(360, 60) ** 0.5 / 360, dispersion.variance(21600, 3600) ** 0.5 / 21600
    assert hour == pytest.approx(minute / np.sqrt(60), rel=0.01)


def test_it_survives_as_text_and_invalid_values_are_rejected() -> None:
    memory = ScalingMemory(dispersion=Dispersion(3.0, 40.0))
    assert parse(dump(memory)).dispersion == memory.dispersion
    for nonsense in ("[3.0,-1.0]", "[NaN,1.0]", '["3"]', "7"):
        assert parse(dump(memory).replace("[3.0,40.0]", nonsense)) == ScalingMemory()
    for row in ("[3.0]", "[3.0,0.0,1]"):  # of another version
        assert parse(dump(memory).replace("[3.0,40.0]", row)).dispersion == Dispersion(3.0)
