"""examples/optuna: a study whose workers are lost ends with every trial ended once, from where it was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from environments import LOCKS, ROOT, environment, play


def test_the_examples_optuna_is_the_one_that_was_tried() -> None:
    [line] = (ROOT / "examples/optuna/requirements.txt").read_text().splitlines()
    assert line == (LOCKS / "optuna.in").read_text().strip()
    assert f"\n{line} " in (LOCKS / "optuna.txt").read_text()


@pytest.mark.soak
def test_a_study_ends_each_trial_when_workers_are_lost(tmp_path: Path) -> None:
    """Its environment is downloaded: in ``make soak`` only."""
    seen = play(environment("optuna"), "optuna_kills", tmp_path, "3", "2", seconds=900)
    assert seen["unused"] == 0
    assert {tuple(ended) for ended in seen["codes"]} == {
        (signal.SIGTERM, 0),
        (signal.SIGKILL, -signal.SIGKILL),
    }
    assert set(seen["states"]) <= {"COMPLETE", "PRUNED"}
    assert 20 <= seen["trials"] <= 21
    assert all(steps == list(range(8)) for steps in seen["steps"])
    assert seen["done"] == 2
