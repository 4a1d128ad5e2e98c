"""How much the minutes of a load differ beyond chance, learned from a day of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.memory import ScalingMemory, dump, parse
from market.load.shapes import LoadShape


def learned(rates: list[float], so_far: Dispersion | None = None) -> Dispersion:
    """What is known after these minutes."""
    known = so_far or Dispersion()
    for before, rate in pairwise(rates):
        known = known.seen(before, rate)
    return known


def a_day(clumping: float, bursts: float = 0.0) -> list[float]:
    """The requests a second of each minute of a day with a curve, timers and a drift."""
    shape = LoadShape("of a test", clumping=clumping, bursts=bursts, silences=0)
    return [float(rate) for rate in shape.arrivals(1, 7).reshape(-1, 60).mean(axis=1)]


@pytest.mark.parametrize("clumping", [0.0, 0.3, 0.6])
def test_the_clumps_of_a_load_are_found_under_its_day(clumping: float) -> None:
    # What varies anew every ten seconds varies by a sixth of that from minute to minute.
    assert learned(a_day(clumping)).share == pytest.approx(clumping**2 / 6, rel=0.25, abs=0.001)


def test_bursts_of_minutes_are_no_clumps() -> None:
    assert learned(a_day(0.3, bursts=8.0)).share == pytest.approx(0.3**2 / 6, rel=0.35)


def test_an_outage_makes_no_chance_of_the_bursts_after_it() -> None:
    known = learned([0.0, 500.0, 0.0, 6.0], learned(a_day(0.3)))
    assert known.share <= 1 / 8
    assert 3 * known.variance(720.0, 120.0) ** 0.5 < 0.8 * 720.0


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_no_load_has_less_than_chance_or_more_than_an_eighth(rates: list[float]) -> None:
    known = learned(rates)
    assert 0 <= known.share <= 1 / 8
    assert known.variance(10.0, 60.0) >= 10.0


def test_what_is_longer_varies_less() -> None:
    known = learned(a_day(0.6))
    minute, hour = known.variance(360, 60) ** 0.5 / 360, known.variance(21600, 3600) ** 0.5 / 21600
    assert hour == pytest.approx(minute / np.sqrt(60), rel=0.01)


def test_it_is_remembered_and_nonsense_is_not() -> None:
    memory = ScalingMemory(dispersion=Dispersion(3.0, 40.0))
    assert parse(dump(memory)).dispersion == memory.dispersion
    for nonsense in ("[3.0,-1.0]", "[NaN,1.0]", "[3.0]", "7"):
        assert parse(dump(memory).replace("[3.0,40.0]", nonsense)) == ScalingMemory()
