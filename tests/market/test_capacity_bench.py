"""The capacity benchmark itself, at a reduced count: the same code that writes the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.market import capacity
from bench.parts.page import replace_part


def test_the_frontier_is_at_least_as_good_as_the_baselines(tmp_path: Path, traces: Path | None) -> None:
    out = tmp_path / "capacity.json"
    policies = (
        "on-demand,spot-only,checker-2018,spothedge-ideal,expected-cost,expected-cost@1.2,expected-cost@10"
    )
    options = ["--out", str(out), "--seeds", "1", "--policy", policies, "--docs", str(tmp_path / "docs")]
    capacity.main([*options, *([] if traces else ["--scenarios", "1"])])
    result = json.loads(out.read_text())
    assert result["source"] == ("traces" if traces else "model")
    usual = result["summary"]["expected-cost"]
    assert usual["cost_vs_bound"] <= 1.035
    assert usual["worst_cost_vs_bound"] <= 1.055
    assert usual["everything_vs_bound"] <= 1.06
    assert usual["availability"] >= 0.9993
    # About four times as long as the policy that never looks at spot, on a machine of whatever speed.
    assert usual["slowest_seconds"] < 20 * result["summary"]["on-demand"]["slowest_seconds"]
    found = result["findings"]
    assert found["cheaper_than_spothedge_ideal"]["by"] >= (0.15 if traces else 0.05)
    assert max(found["frontier_cost_over_baseline"].values()) <= 1 + 1e-9
    assert [row["availability"] for row in result["by_scenario"].values()] == pytest.approx(
        [o["availability"] for o in result["outcomes"] if o["policy"] == "expected-cost"]
    )
    assert not (tmp_path / "docs").exists()  # a reduced count is not published


def test_a_part_of_the_page_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    replace_part(page, "capacity", "old")
    replace_part(page, "deadline", "other")
    replace_part(page, "capacity", "new")
    text = page.read_text()
    assert "old" not in text
    assert text.index("new") < text.index("other")
