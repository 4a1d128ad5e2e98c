"""Scripts of habits, killed: what they export is an uninterrupted run's, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.real.environments import ROOT, environment, variables


def test_scripts_of_habits_survive_kills(tmp_path: Path) -> None:
    place = environment("torch")
    own = variables(place)
    command = [place / "python", "-m", "tests.real.wild.harness", "--folder", tmp_path, "--kills", "1"]
    path = os.pathsep.join([own["PYTHONPATH"], str(ROOT)])
    done = subprocess.run(
        command, env={**own, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wild_scripts"] == 7
    assert result["wild_kills"] >= 7
    assert result["faults"] == []
    for key in ("wild_mismatches", "stuck_runs", "exports_lost", "failed_starts", "lost_steps_with_notice"):
        assert result[key] == 0, key
