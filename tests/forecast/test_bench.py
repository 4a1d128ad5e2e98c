"""What ``make bench-forecast`` measures, on the beginning of two markets."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import pytest

from bench.market import forecast
from bench.parts.scenarios import modelled, real
from gpu_spot.forecast.ranges import WEEK, Part

DAYS = 17.5


def test_figures_of_two_short_markets(traces: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "SHORTAGE_COSTS", (30.0, 100.0))
    monkeypatch.setattr(forecast, "_COUNTS", 1)
    taken = (real(traces) if traces else modelled(DAYS))[:2]
    few = [replace(one, traces=tuple(trace.first(DAYS * 86400) for trace in one.traces)) for one in taken]
    found, figures = forecast.measured(few, workers=1)
    assert figures["windows"] == len(found) >= 8
    assert figures["independent_weeks"] == 2
    assert 0 <= figures["advise_regret"] <= 0.1
    assert figures["advise_worst_window"] == 1 + figures["worst_advise_regret"]
    for key in ("cost_coverage", "shortage_coverage", "error_ratio", "held_out_error_ratio", "advise_kept"):
        assert figures[key] >= 0


def test_the_page_has_the_figures_and_keeps_other_parts(tmp_path: Path) -> None:
    shares = ("cost_coverage", "shortage_coverage", "error_ratio", "mean_error_ratio", "shortage_error_ratio")
    left_out = ("held_out_error_ratio", "held_out_error_ratio_both_worlds", "hindsight_error_ratio")
    advice = ("advise_regret", "worst_advise_regret", "advise_kept")
    figures = dict.fromkeys((*shares, *left_out, *advice), 0.125)
    figures |= {"advise_worst_window": 1.13, "advise_strict_mean": 1.04, "advise_strict_worst_window": 1.3}
    markets = {"us-west-2, 172800 s": {"windows": 63, "independent_weeks": 5}}
    times = {"seconds_50_groups": 21.4, "cpu_seconds_50_groups": 30.0}
    counted = {"source": "traces", "windows": 180, "independent_weeks": 12, "markets": markets}
    page = tmp_path / "performance.md"
    page.write_text("<!-- other: begin -->\nothers\n<!-- other: end -->\n")
    model = {"model": figures | {"error_ratio": 0.945}}
    for _ in range(2):
        forecast.document(tmp_path, figures | counted | times | model, 50)
    text = page.read_text()
    assert text.count("## Forecasts and outcomes") == text.count("others") == 1
    assert "On the traces, every half day after the first week: 180 overlapping forecasts" in text
    assert "| advice: cost above the best, mean | 12.5% | 12.5% |" in text
    assert "| median error of the cost ÷ that of last week | 0.12 | 0.94 |" in text
    assert "| advice: cost above the best, worst week | 13% | 13% |" in text
    assert "| us-west-2, 2 days | 63 | 5 |" in text
    assert "30 s of CPU time on two cores, 21 s of wall time" in text


def part(cost: float, shortage: float = 0.0) -> Part:
    return Part(cost, shortage)


def test_ranges_are_evaluated_with_the_spreads_of_other_markets() -> None:
    stable = list(forecast.windows("calm", [part(0.3)] * (2 * WEEK + 4)))
    wild = list(forecast.windows("wild", [part(0.3)] * WEEK + [part(0.3 * exp(0.5))] * WEEK))
    figures = forecast.judged([*stable, *wild])
    assert figures["windows"] == 6
    assert figures["cost_coverage"] == 5 / 6  # the calm market's spread is none
    assert forecast.fit(wild).cost == pytest.approx(0.5)


def test_regret_is_relative_to_equally_available_options() -> None:
    zones, _ = ("a",), ()
    cheap = forecast.Option((), zones, 30.0, 0)
    dear = forecast.Option((), zones, 100.0, 0)
    late = [part(0.3, 10.0)] * 2 * WEEK  # 140 minutes a week are too many
    assert forecast.regrets({cheap: late, dear: [part(0.4)] * 2 * WEEK}) == [(0.0, True)]
    # The cheap one was never short before, and is in the week that counts.
    turned = [part(0.3)] * WEEK + [part(0.3, 10.0)] * WEEK
    assert forecast.regrets({cheap: turned, dear: [part(0.4)] * 2 * WEEK}) == [(0.0, False)]
    both = forecast.regrets({cheap: [part(0.5)] * WEEK + [part(0.6)] * WEEK, dear: [part(0.55)] * 2 * WEEK})
    assert both[0][0] == pytest.approx(0.6 / 0.55 - 1)


def test_a_mix_costs_and_misses_the_share_of_its_spot_slots() -> None:
    option = forecast.Option((), ("a",), 30.0, 0)
    spot = [part(0.4, 10.0)] * 2 * WEEK
    mixes = forecast.with_mixes({option: spot})
    assert [other.spot_percentage for other in mixes] == list(forecast.SPOT_PERCENTAGES)
    half = next(other for other in mixes if other.spot_percentage == 50)
    outcome = forecast.mixed(half, *forecast.came(spot[:WEEK]))
    assert outcome.cost == pytest.approx(0.7)
    assert outcome.availability == pytest.approx(1 - 70 / (7 * 1440))
    # All Spot misses 140 minutes a week and half 70: a quarter is the most that is available enough.
    assert forecast.regrets(mixes, required=0.995) == [(0.0, True)]


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
