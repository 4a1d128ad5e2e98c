"""The stack with a Spot Fleet as primary, as a user rehearses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.test_command import forked


@pytest.mark.soak
def test_the_demo_keeps_a_fleets_workers_alive(tmp_path: Path, traces: Path | None) -> None:
    week = traces / "availability" / "1-node" / "aws-02-15-2023" if traces else None
    files = sorted(week.glob("us-west-2*.json")) if week else []
    given = ["--trace", *files] if files else []
    hours = "48" if files else "24"
    done = forked("demo", "--stack", "fleet", "--hours", hours, "--target", "4", "--out", tmp_path, *given)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["market"] == ([str(f) for f in files] if files else "model")
    assert summary["interruptions"] > 0
    assert summary["on_demand_starts"] > 0
    assert summary["availability"] >= 0.9985
    assert summary["cost_vs_on_demand"] <= (0.34 if files else 0.6)
    assert "gpu-spot:infra:CapacityGroup" in done.stdout
