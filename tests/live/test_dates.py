"""Checkpoints of a real command get simulated modification times after its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rehearsal.machines.real.dates import CheckpointDates, stamp


def write(folder: Path, name: str, at: float) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize("is_signalled", [True, False])
def test_files_written_during_the_run_and_the_final_save(tmp_path: Path, is_signalled: bool) -> None:
    old = write(tmp_path, "step-1", 500.0)  # of the one before, in simulated time
    here, simulated = [9000.0], [1000.0]
    dates = CheckpointDates(tmp_path, lambda: simulated[0], lambda: here[0])
    half = write(tmp_path, "deep/step-2", 9005.0)
    here[0], simulated[0] = 9010.0, 4600.0  # ten seconds here were an hour there
    if is_signalled:
        dates.note_signal()
        here[0] = 9012.0  # it takes its time to save, and no time passes there
        saved = write(tmp_path, "step-3", 9011.5)
        dates.note_signal()
    else:
        saved = write(tmp_path, "step-3", 9010.0)
    dates.settle()
    assert old.stat().st_mtime == 500.0
    assert half.stat().st_mtime == pytest.approx(2800.0)
    assert saved.stat().st_mtime == 4600.0
    dates.settle()
    assert half.stat().st_mtime == pytest.approx(2800.0)


def test_files_are_dated_by_their_own_clock(tmp_path: Path) -> None:
    here = stamp(tmp_path / "stamp")
    first = here()
    path = tmp_path / "file"
    path.touch()
    assert first <= path.stat().st_mtime <= here()
