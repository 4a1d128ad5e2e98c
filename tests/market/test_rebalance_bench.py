"""The benchmark of who replaces an instance at risk, at a reduced count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.market import rebalance


@pytest.mark.soak
def test_no_replacement_is_cheapest_as_published(tmp_path: Path, traces: Path | None) -> None:
    out = tmp_path / "rebalance.json"
    rebalance.main(["--out", str(out), "--scenarios", "1", "--docs", str(tmp_path / "docs")])
    result = json.loads(out.read_text())
    assert result["source"] == ("traces" if traces else "model")
    rows = {(row["world"], row["owner"]): row for row in result["summary"]}
    assert len(rows) == len(rebalance.WORLDS) * len(rebalance.OWNERS)
    without_replacement, aws = rows["as published", "none"], rows["as published", "AWS"]
    assert without_replacement["cost"] < aws["cost"]
    assert without_replacement["availability"] >= aws["availability"]
    # The model's pools lose their capacity more than three times as often as those of the first scenario.
    assert without_replacement["availability"] > (0.999 if traces else 0.998)
    assert max(row["let_go_booting_per_day"] for row in rows.values()) == 0
    assert not (tmp_path / "docs").exists()  # a reduced count is not published
