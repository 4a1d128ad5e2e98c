"""The learned overdispersion of a day of arrivals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from market.load.shapes import LoadShape


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
    for nonsense in ("[3.0,-1.0]", "[NaN,1.0]", "[3.0]", "7"):
        assert parse(dump(memory).replace("[3.0,40.0]", nonsense)) == ScalingMemory()
