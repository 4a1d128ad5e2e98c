"""Scripts of habits, killed: what they export is an uninterrupted run's, to the bit."""

from __future__ import annotations

from pathlib import Path

from tests.real.environments import environment, play_module
from tests.real.wild import harness


def test_scripts_of_habits_survive_kills(tmp_path: Path) -> None:
    options = ["--folder", tmp_path, "--kills", "1", "--only", *harness.TORCH]
    result = play_module(environment("torch"), "wild.harness", *options, seconds=300)
    assert result["wild_scripts"] == 8
    assert result["wild_kills"] >= 8
    assert result["faults"] == []
    for key in ("wild_mismatches", "stuck_runs", "exports_lost", "failed_starts", "lost_steps_with_notice"):
        assert result[key] == 0, key
