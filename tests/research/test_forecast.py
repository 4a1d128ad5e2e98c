"""What ``make bench-forecast`` measures, on the beginning of two markets."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import pytest

from gpu_spot.forecast.ranges import WEEK, Part
from research.market import forecast
from research.parts.scenarios import modelled, real

DAYS = 17.5


def test_figures_of_two_short_markets(traces: Path | None) -> None:
    taken = (real(traces) if traces else modelled(DAYS))[:2]
    few = [replace(one, traces=tuple(trace.first(DAYS * 86400) for trace in one.traces)) for one in taken]
    found, figures = forecast.measured(few, workers=1)
    assert figures["windows"] == len(found) >= 8
    assert figures["independent_weeks"] == 2
    for key in ("cost_coverage", "shortage_coverage", "error_ratio", "held_out_error_ratio"):
        assert figures[key] >= 0


def part(cost: float, shortage: float = 0.0) -> Part:
    return Part(cost, shortage)


def test_ranges_are_evaluated_with_the_spreads_of_other_markets() -> None:
    stable = list(forecast.windows("calm", [part(0.3)] * (2 * WEEK + 4)))
    wild = list(forecast.windows("wild", [part(0.3)] * WEEK + [part(0.3 * exp(0.5))] * WEEK))
    figures = forecast.judged([*stable, *wild])
    assert figures["windows"] == 6
    assert figures["cost_coverage"] == 5 / 6  # the calm market's spread is none
    assert forecast.fit(wild).cost == pytest.approx(0.5)


def test_the_level_of_a_market_is_chosen_on_the_others() -> None:
    # One market jumps and stays, which only recent costs follow; the other returns to its mean each week.
    jumping = [part(0.3)] * 2 * WEEK + [part(0.6)] * 3 * WEEK
    turning = ([part(0.3)] * WEEK + [part(0.6)] * WEEK) * 3
    jumps, turns = (list(forecast.windows(*m)) for m in (("jumps", jumping), ("turns", turning)))
    errors = forecast.held_out(turns, jumps)
    recent = max(forecast.LEVELS, key=lambda level: (level.recent, -level.memory))
    assert errors == [abs(forecast.cost_level(one.before, recent) - one.cost) for one in turns]
    assert turns[0].hindsight == pytest.approx(0.45)
    assert turns[0].last == pytest.approx(0.3)
