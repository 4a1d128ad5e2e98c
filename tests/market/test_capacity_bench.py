"""The capacity benchmark itself, at a reduced count: the same code that writes the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import capacity
from bench._page import replace_part


def test_the_frontier_is_at_least_as_good_as_the_baselines(tmp_path: Path, traces: Path | None) -> None:
    out = tmp_path / "capacity.json"
    policies = (
        "on-demand,spot-only,checker-2018,spothedge-ideal,expected-cost,expected-cost@1.2,"
        "expected-cost@10,expected-cost@55,expected-cost@100,expected-cost@250"
    )
    options = ["--out", str(out), "--seeds", "1", "--policy", policies, "--docs", str(tmp_path / "docs")]
    capacity.main([*options, *([] if traces else ["--scenarios", "2"])])
    result = json.loads(out.read_text())
    assert result["source"] == ("traces" if traces else "model")
    usual = result["summary"]["notice 0.9, on-demand 60 s"]["expected-cost"]
    assert usual["cost_vs_bound"] <= 1.03
    assert usual["worst_cost_vs_bound"] <= (1.05 if traces else 1.04)
    assert usual["availability"] >= 0.9995
    assert usual["worst_availability"] >= 0.999
    assert usual["slowest_seconds"] < 60
    for setting, found in result["findings"].items():
        # The model's markets are scarcer than the traces: there is less spot to be saved on.
        assert found["cheaper_than_spothedge_ideal"]["by"] >= (0.15 if traces else 0.05), setting
        assert max(found["frontier_cost_over_baseline"].values()) <= 1 + 1e-9, setting
    assert not (tmp_path / "docs").exists()  # a reduced count is not published


def test_a_part_of_the_page_is_replaced_and_the_others_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    replace_part(page, "capacity", "old")
    replace_part(page, "deadline", "other")
    replace_part(page, "capacity", "new")
    text = page.read_text()
    assert "old" not in text
    assert text.index("new") < text.index("other")


@pytest.mark.parametrize(("availability", "cost"), [(0.95, 1.0), (0.975, 1.5), (1.0, 2.0), (0.5, 1.0)])
def test_the_frontier_is_straight_between_its_points(availability: float, cost: float) -> None:
    rows = {
        "expected-cost@1": {"availability": 0.95, "cost_vs_bound": 1.0},
        "on-demand": {"availability": 1.0, "cost_vs_bound": 2.0},
    }
    assert capacity.frontier_cost(rows, availability) == pytest.approx(cost)
