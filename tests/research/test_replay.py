"""``research.replay`` and its siblings: JSON, plots, one clear line for what is wrong; measured forecasts."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.forecast.ranges import WEEK, Part
from market.rules import Rules
from market.supply.drawn_market import draw
from research import replay as command
from research import replay_deadline as deadline
from research.market import forecast
from research.parts.scenarios import modelled, real
from research.replay import FAULTS
from research.simulation.deadline.policies import NAMES

DAYS = 17.5


def test_figures_of_two_short_markets(traces: Path | None) -> None:
    taken = (real(traces) if traces else modelled(DAYS))[:2]
    few = [replace(one, traces=tuple(trace.first(DAYS * 86400) for trace in one.traces)) for one in taken]
    found, figures = forecast.measured(few)
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


KEYS = {
    "policy", "default", "target", "pools", "ticks", "availability", "full_fraction", "cost",
    "cost_with_everything", "cost_vs_bound", "minutes_none_ready", "largest_loss",
    "bound", "launches_per_day", "interruptions_per_day", "wasted_fraction", "seconds",
}  # fmt: skip


def write(path: Path, data: Any, gap: float = 60) -> Path:
    path.write_text(json.dumps({"metadata": {"gap_seconds": gap}, "data": data}))
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for pool in draw(2, 48, 3):
        write(folder / f"{pool.name}.json", pool.samples)
    return folder


def replay(*arguments: str | Path) -> int:
    return command.main(list(map(str, arguments)))


def test_all_policies_in_json(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "out.json"
    assert replay("--trace", recorded, "--target", "4", "--policy", "all", "--json", out) == 0
    outcomes = json.loads(out.read_text())
    assert all(set(outcome) == KEYS for outcome in outcomes)
    assert {o["pools"] for o in outcomes} == {2}
    assert {o["ticks"] for o in outcomes} == {48 * 60 - 60}
    assert [o["policy"] for o in outcomes if o["default"]] == ["expected-cost"]
    by_name = {o["policy"]: o for o in outcomes}
    assert by_name["on-demand"]["cost"] == pytest.approx(1.0)
    assert by_name["on-demand"]["availability"] == 1.0
    assert by_name["expected-cost"]["cost_vs_bound"] == pytest.approx(
        by_name["expected-cost"]["cost"] / by_name["expected-cost"]["bound"]
    )
    table = capsys.readouterr().out
    assert all(name in table for name in by_name)


def test_the_same_seed_gives_the_same_figures(recorded: Path, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "1", "2"):
        out = tmp_path / "out.json"
        replay("--trace", recorded, "--target", "4", "--notice-share", "0.5", "--seed", seed, "--json", out)
        (outcome,) = json.loads(out.read_text())
        outcome.pop("seconds")
        found.append(outcome)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(("ending", "begins"), [("svg", "<svg"), ("html", "<!doctype html>")])
def test_a_plot_goes_by_its_ending(recorded: Path, tmp_path: Path, ending: str, begins: str) -> None:
    out = tmp_path / f"plot.{ending}"
    policies = "ready-handover,expected-cost@3,expected-cost@300"
    assert replay("--trace", recorded, "--target", "2", "--policy", policies, "--plot", out) == 0
    text = out.read_text()
    assert text.startswith(begins)
    assert "ready-handover" in text


def test_a_wrong_option_is_one_line(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--target", "0"], "target must be at least 1, not 0"),
        (["--target", "4", "--policy", "expected-costs"], "policy 'expected-costs' is unknown; use all"),
        (["--target", "4", "--plot", "plot.gif"], "plot plot.gif must end in .html or .svg"),
        (["--target", "4", "--on-demand-price", "3"], "trace model-1 has no prices"),
    ):
        assert replay("--trace", recorded, *arguments) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_training_jobs_are_replayed_in_every_trace(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    options = ["--compute", "10", "--restart-minutes", "6", "--starts", "5", "--json", str(out)]
    call = ["--trace", str(recorded), *options]
    assert deadline.main([*call, "--deadline", "15"]) == 0
    rows = json.loads(out.read_text())
    assert [row["policy"] for row in rows] == list(NAMES) * 2
    assert all(row["misses"] == 0 and row["jobs"] == 5 and row["cost_vs_bound"] >= 1 for row in rows)
    assert next(row["cost"] for row in rows if row["policy"] == "on-demand") == pytest.approx(1.0)
    capsys.readouterr()
    assert deadline.main([*call, "--deadline", "10"]) == 2
    assert (
        "deadline must be at least compute + restart overhead = 10.1 h, not 10 h" in capsys.readouterr().err
    )


def test_every_rule_that_may_be_doubted_is_described() -> None:
    assert [name for name in FAULTS if f"``{name}``" not in (Rules.__doc__ or "")] == []
