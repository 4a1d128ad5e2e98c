"""``gpu-spot demo --service``: the example's workers on a real broker, their instances taken by a market."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def test_every_request_is_answered_while_instances_come_and_go(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("gpu-spot"), "demo", "--service", "ocr", "--hours", "0.65"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=HERE, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    summary = json.loads((tmp_path / "summary.json").read_text())
    service = summary["service"]
    assert service["requests"] > 500
    assert service["answered"] == service["requests"]
    assert (service["lost"], service["unmarked_duplicates"]) == (0, 0)
    assert summary["interruptions"] > 0
    assert service["drained"] + service["overdue"] + service["killed"] > 0
    workers = [ready for _, ready, _ in service["over_time"]]
    assert min(workers[15:]) < max(workers)
    assert "Requests and workers" in (tmp_path / "report.html").read_text()
