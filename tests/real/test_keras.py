"""Keras on JAX, killed and told at random moments: the weights and the log are an undisturbed training's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real.environments import environment, variables

KILLS = Path(__file__).parent / "kills.py"


@pytest.fixture(scope="session")
def keras_bin() -> Path:
    return environment("keras")


def kills(place: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    command = [place / "python", KILLS, "train_keras", "--folder", folder, *arguments]
    done = subprocess.run(command, env=variables(place), capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["mismatches"] == found["unreadable"] == 0
    assert found["faults"] == []
    return found


def test_ten_interruptions_change_no_bit(keras_bin: Path, tmp_path: Path) -> None:
    told = kills(keras_bin, tmp_path, "--terms", "5", "--kills", "5")
    assert (told["sigterm"], told["sigkill"]) == (5, 5)
    assert told["lost_steps_with_notice"] == 0


def test_a_kill_at_some_touches_of_the_disk_loses_no_checkpoint(keras_bin: Path, tmp_path: Path) -> None:
    quick = ["--option", "pause=0", "--option", "every=1e-9", "--option", "validation=false"]
    told = kills(keras_bin, tmp_path, "--each-write", "--stride", "8", *quick)
    assert told["writes"] > 3
