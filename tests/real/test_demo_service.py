"""``gpu-spot demo --service``: both services of a chain on a real broker, instances taken by a market."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_every_request_is_answered_while_instances_come_and_go(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("gpu-spot"), "demo", "--service", "ocr", "--hours", "0.65"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=HERE, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    summary = json.loads((tmp_path / "summary.json").read_text())
    service = summary["service"]
    assert service["requests"] > 200  # as many as fit into the time that the day takes here
    assert service["answered"] == service["requests"]
    assert (service["lost"], service["unmarked_duplicates"]) == (0, 0)
    assert summary["interruptions"] > 0
    assert service["drained"] + service["overdue"] + service["killed"] > 0
    workers = [ready for _, ready, _ in service["over_time"]]
    assert min(workers[15:]) < max(workers)
    page = (tmp_path / "report.html").read_text()
    assert "Requests and workers" in page
    # All kinds of machines worked on both queues, and the external API answered while all were gone.
    assert service["wrong"] == 0
    assert all(service["answered_by"].values()), service["answered_by"]
    assert sum(service["answered_by"].values()) == service["answered"]
    assert [group["name"] for group in service["services"]] == ["ocr", "pages"]
    for group in service["services"]:
        assert all(group["runs_by"].values()), group
        assert group["interruptions"] > 0
        assert 0 < group["cost_vs_on_demand"] < 2
    waits = service["wait_seconds"]
    assert 0 < waits["p50"] <= waits["p95"] <= waits["p99"] <= waits["longest"]
    assert "not counting the API" in page
