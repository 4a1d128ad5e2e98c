"""Benchmarks at a reduced count, by the code that writes the published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from market.rules import Rules
from research.market import capacity, deadline, doubt, rebalance, warm_pool
from research.parts.cells import cells
from research.parts.deadline.jobs import RATIOS, Task
from research.parts.deadline.uncertainty import AXES, grid
from research.parts.page import replace_part
from research.parts.scenarios import real
from research.simulation.comparison.contenders import named
from research.simulation.comparison.runs import compare

# Cost and availability (%) of the reference replay in the traces' README, by scenario, and the bound's row.
REFERENCE = {
    "us-west-2 x3 N=4": {"spot-only": (0.288, 95.4), "static-mix": (0.644, 97.7), "bound": (0.332, 0)},
    "us-east-1 x4 N=4": {"spot-only": (0.214, 69.1), "static-mix": (0.607, 84.5), "bound": (0.531, 0)},
    "v100_8 x2 N=4": {"spot-only": (0.179, 56.3), "static-mix": (0.589, 78.2), "bound": (0.634, 0)},
    "4-node x3 N=4": {"spot-only": (0.291, 96.4), "static-mix": (0.647, 98.6), "bound": (0.326, 0)},
    "preempt x4 N=4 pool size 8": {
        "spot-only": (0.269, 87.9),
        "static-mix": (0.634, 94.0),
        "bound": (0.385, 0),
    },
}
MOST = {"1.15": 1.10, "1.3": 1.08, "1.5": 1.07, "2.0": 1.06}
BELOW_UNIFORM_PROGRESS = {"1.15": 0.08, "1.3": 0.08, "1.5": 0.10, "2.0": 0.14}
FEW_STARTS = 0.01
"""What a mean over eight starts a pool may be off; the whole run is `make bench-deadline`."""


def result_of(bench: Any, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a benchmark at a reduced count, which is not published."""
    out = folder / "out.json"
    bench.main(["--out", str(out), "--docs", str(folder / "docs"), *arguments])
    assert not (folder / "docs").exists()
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def test_the_reference_figures_come_out(traces: Path | None) -> None:
    if traces is None:
        pytest.skip("GPU_SPOT_TRACES is not set: the reference figures are of those traces")
    rules = Rules(on_demand_cold_start=180.0)
    for scenario in real(traces):
        if scenario.name not in REFERENCE:
            continue
        expected = REFERENCE[scenario.name]
        found = list(compare(scenario.traces, rules, named("spot-only,static-mix"), scenario.target))
        assert found[0].bound == pytest.approx(expected["bound"][0], abs=0.0006)
        for outcome in found:
            cost, available = expected[outcome.policy]
            assert outcome.cost == pytest.approx(cost, abs=0.0006), scenario.name
            assert 100 * outcome.availability == pytest.approx(available, abs=0.06), scenario.name


def test_the_frontier_is_at_least_as_good_as_the_baselines(tmp_path: Path, traces: Path | None) -> None:
    policies = (
        "on-demand,spot-only,ready-handover,spothedge+0,spothedge-notices+0,spothedge-notices+1,"
        "expected-cost,expected-cost@1.2,expected-cost@20,expected-cost@300"
    )
    options = ["--seeds", "1", "--policy", policies, *([] if traces else ["--scenarios", "1"])]
    result = result_of(capacity, tmp_path, *options)
    assert result["source"] == ("traces" if traces else "model")
    pooled, cold = result["families"].values()
    usual = pooled["summary"]["expected-cost"]
    assert usual["cost_vs_bound"] <= 1.035
    assert usual["worst_cost_vs_bound"] <= 1.055
    assert usual["everything_vs_bound"] <= 1.06
    assert usual["availability"] >= 0.9993
    # About four times as long as the policy that never looks at spot, on a machine of whatever speed.
    assert usual["slowest_seconds"] < 20 * pooled["summary"]["on-demand"]["slowest_seconds"]
    for of in (pooled, cold):
        assert of["at_ours"] <= 1
        # Trying other zones costs what SpotHedge with notices wins; it has more minutes without any worker.
        assert max(of["ours_over"].values()) <= (1.02 if traces else 1.05)
        assert of["ours_over"]["spothedge-notices+1"] <= 0.96


@pytest.mark.long
def test_nothing_dominates_the_default_and_its_regret_is_small(tmp_path: Path, traces: Path | None) -> None:
    result = result_of(doubt, tmp_path, "--cells", "6", "--days", "2", "--scenarios", "2")
    assert (result["cells"], len(result["rows"])) == (6, 6 * len(doubt.CONTENDERS))
    # That nothing beats it is said of the traces; of the few days drawn from the model one may go.
    assert result["dominated"] <= (0 if traces else 1)
    assert result["mean_regret"] <= 0.01
    assert min(result["regret_of"].values()) >= 3 * result["mean_regret"]


@pytest.mark.parametrize(("axes", "together", "least"), [(doubt.AXES, doubt.TOGETHER, 60), (AXES, 4, 20)])
def test_a_grid_holds_every_doubt_alone_and_every_two_in_one(axes: Any, together: int, least: int) -> None:
    made = cells(axes, together)
    assert len(made) >= least
    values = [(axis, value) for axis, of_axis in axes.items() for value in of_axis]
    assert made[0] == {}
    assert [dict([value]) for value in values] == made[1 : len(values) + 1]
    for one in values:
        for other in values:
            assert one[0] == other[0] or any({one, other} <= set(cell.items()) for cell in made)


def test_the_pool_that_a_stack_takes_is_near_the_best(
    tmp_path: Path, traces: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool, "SHORTAGE_COSTS", (1.2, 100.0))
    monkeypatch.setattr(warm_pool, "WORLDS", dict(list(warm_pool.WORLDS.items())[:2]))
    result = result_of(warm_pool, tmp_path, "--scenarios", "1")
    cheap, dear = result["costs"]
    assert (cheap["share"], dear["share"]) == (0.0, 1.0)
    assert cheap["chosen_vs_best"] <= 1.02
    assert dear["chosen_vs_best"] == 1.0
    assert dear["share_0_vs_best"] >= 1.1
    friendly, without = result["worlds"]
    assert friendly["everything_vs_bound"] <= without["everything_vs_bound"] - 0.01
    assert friendly["worth"] < friendly["cold_worth"]


@pytest.mark.soak
def test_no_replacement_is_cheapest_as_published(tmp_path: Path, traces: Path | None) -> None:
    result = result_of(rebalance, tmp_path, "--scenarios", "1")
    rows = {(row["world"], row["owner"]): row for row in result["summary"]}
    assert len(rows) == len(rebalance.WORLDS) * len(rebalance.OWNERS)
    without_replacement, aws = rows["as published", "none"], rows["as published", "AWS"]
    assert without_replacement["cost"] < aws["cost"]
    assert without_replacement["availability"] >= aws["availability"]
    # The model's pools lose their capacity more than three times as often as those of the first scenario.
    assert without_replacement["availability"] > (0.999 if traces else 0.998)
    assert max(row["let_go_booting_per_day"] for row in rows.values()) == 0


def test_deadlines_hold_their_figures_on_traces_that_they_were_not_fitted_on(
    traces: Path | None, tmp_path: Path
) -> None:
    figures = result_of(deadline, tmp_path, "--starts", "8", "--cells", "3", "--stack-pools", "0")
    assert figures["source"] == ("traces" if traces else "drawn from the fitted hazards")
    assert figures["replays"] == figures["pools"] * 8 * 4 * len(RATIOS)
    assert figures["misses"] == figures["misses_of_baselines"] == 0
    assert figures["worst_vs_best_baseline"] <= 1.02
    assert figures["grid"]["missed"] == figures["grid"]["dominated"] == 0
    for ratio, most in MOST.items():
        assert figures["cost_vs_clairvoyant"][ratio] <= most + FEW_STARTS
        below = 1 - figures["cost_vs_uniform_progress"][ratio]
        assert below >= BELOW_UNIFORM_PROGRESS[ratio] - FEW_STARTS


def test_jobs_missed_under_all_uncertainty_were_infeasible_and_reported_late() -> None:
    """Every axis doubted at once, with and without earlier jobs, in a pool of each kind."""
    worlds = [
        {axis: next(iter(values)) for axis, values in AXES.items() if axis not in without}
        for without in (("spot price",), ("spot price", "earlier jobs"))
    ]
    work = [Task(name, deadline.draw(name, 1), 20, 1, None) for name in ("poor", "middling", "good")]
    figures = grid(work, worlds, map)
    assert figures["jobs"] == len(worlds) * len(work) * 8
    assert figures["missed"] > 0
    assert figures["avoidable"] == figures["unsaid"] == 0


def test_a_part_of_the_page_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    replace_part(tmp_path, "capacity", "old")
    replace_part(tmp_path, "doubt", "other")
    replace_part(tmp_path, "deadline", "elsewhere")
    replace_part(tmp_path, "capacity", "new")
    text = (tmp_path / "research" / "capacity.md").read_text()
    assert "old" not in text
    assert text.index("new") < text.index("other")
    assert "elsewhere" in (tmp_path / "research" / "training.md").read_text()
