"""``gpu-spot replay``: its JSON, its plots, and one clear line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.cli import main
from market.supply.drawn_market import draw

KEYS = {
    "policy", "default", "target", "pools", "ticks", "availability", "full_fraction", "cost",
    "cost_with_everything", "cost_vs_bound",
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
    return main(["replay", *map(str, arguments)])


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "0"], "target is 0, at least 1 is needed"),
        (["--target", "-3"], "target is -3"),
        (["--target", "4", "--policy", "expected-costs"], "policy 'expected-costs' is unknown, allowed: all"),
        (["--target", "4", "--notice-share", "1.5"], "notice is 1.5, a probability"),
        (["--target", "4", "--cold-start", "nan"], "spot_cold_start is nan, a number ≥ 0"),
        (["--target", "4", "--spot-price", "-1"], "spot_price is -1"),
        (["--target", "4", "--pool-size", "0"], "pool size is 0, at least 1"),
        (["--target", "4", "--plot", "plot.gif"], "plot plot.gif ends in '.gif', allowed: .html, .svg"),
        (["--target", "4", "--on-demand-price", "3"], "trace model-1 has no prices"),
    ],
)
def test_a_wrong_option_is_one_line(
    recorded: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay("--trace", recorded, *arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "gap", "message"),
    [
        ([], 60, "data is a list of 0, a list of at least one sample"),
        ([1, -1], 60, "data[1] is -1, a whole number ≥ 0"),
        ([1, float("nan")], 60, "data[1] is nan, a whole number ≥ 0"),
        ([1, 0.5], 60, "data[1] is 0.5"),
        ([1, True], 60, "data[1] is True"),
        ([1] * 100, 0, "metadata.gap_seconds is 0, a positive number"),
        ([1] * 100, 30, "traces have different gaps (30 s, 60 s), one is needed"),
        ([1], 60, "1 ticks are not longer than the warm-up of 60"),
    ],
)
def test_a_wrong_trace_is_one_line(
    tmp_path: Path, data: Any, gap: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path / "good.json", [1] * 100), write(tmp_path / "bad.json", data, gap)
    assert replay("--trace", good, bad, "--target", "4") == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_no_trace_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay("--trace", tmp_path, "--target", "4") == 1
    assert "holds no .json file" in capsys.readouterr().err
    assert replay("--trace", tmp_path / "none.json", "--target", "4") == 1
    assert "none.json does not exist" in capsys.readouterr().err
