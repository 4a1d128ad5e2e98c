"""Scripts of habits, killed: what they export is an uninterrupted run's, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from environments import environment, play

from frameworks.wild import harness


def kill(folder: Path, name: str, scripts: Sequence[str], kills: int) -> None:
    """Kill each of some scripts so many times."""
    options = ["--folder", folder, "--kills", str(kills), "--only", *scripts]
    result = play(environment(name), "wild.harness", *options, seconds=600)
    assert result["wild_scripts"] == len(scripts)
    assert result["wild_kills"] >= kills * len(scripts)
    assert result["faults"] == []
    for key in ("wild_mismatches", "stuck_runs", "exports_lost", "failed_starts", "lost_steps_with_notice"):
        assert result[key] == 0, key


def test_scripts_of_habits_survive_kills(tmp_path: Path) -> None:
    kill(tmp_path, "torch", harness.TORCH[::2], 1)


@pytest.mark.soak
def test_more_scripts_of_habits_survive_kills(tmp_path: Path) -> None:
    others = [name for name in harness.TORCH if name not in harness.TORCH[::2]]
    kill(tmp_path, "torch", others, 6)


@pytest.mark.soak
@pytest.mark.parametrize("script", [*harness.MORE, *harness.RANKS])
def test_streams_and_adapters_survive_kills(tmp_path: Path, script: str) -> None:
    kill(tmp_path, "torch", [script], 10)


@pytest.mark.soak
def test_a_mosaicml_stream_survives_kills(tmp_path: Path) -> None:
    kill(tmp_path, "mosaic", harness.MOSAIC, 10)
