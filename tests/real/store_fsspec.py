"""Checkpoints in a store of fsspec: the newest whole one is restored, the later of two trainings wins."""

from __future__ import annotations

import json
import os
import sys

import fsspec

from spot_training import Checkpointer, InUseError, SpotTrainingError
from spot_training.identity import START_OVER_VARIABLE, TrainingRun
from spot_training.storage.fsspec import FsspecObjects
from spot_training.storage.objects import ObjectStore

URL = "memory://bucket/jobs/a"


def main() -> None:
    first = Checkpointer(URL, keep=2)
    assert first.restore() is None
    for step in (10, 20, 30):
        first.save(step, lambda folder: (folder / "weights").write_text("x" * 1000))
    memory = fsspec.filesystem("memory")
    names = sorted({path.split("/")[4] for path in memory.find("/bucket/jobs/a") if "/step-" in path})
    memory.pipe_file("/bucket/jobs/a/step-000000000030/rank-00000/weights", b"?")
    second = Checkpointer(URL, keep=2)
    saved = second.restore()
    assert saved is not None
    try:
        first.save(40, lambda folder: None)
        wins = "both"
    except InUseError as error:
        wins = str(error)
    memory.pipe_file("/bucket/jobs/a/step-000000000050/manifest.json", b"another's")
    try:
        second.save(50, lambda folder: None)
        exists = ""
    except InUseError as error:
        exists = str(error)
    damaged = ObjectStore(FsspecObjects(URL, memory)).damaged()
    other = Checkpointer(f"{URL}/other", run=TrainingRun(script="a.py"))
    other.save(10, lambda folder: (folder / "weights").write_text("a"))
    reasons = []
    for label in ("", TrainingRun(script="a.py").id):
        os.environ[START_OVER_VARIABLE] = label
        try:
            Checkpointer(f"{URL}/other", run=TrainingRun(script="b.py")).restore()
        except SpotTrainingError as error:
            reasons.append(str(error))
    os.environ.pop(START_OVER_VARIABLE)
    remaining = ObjectStore(FsspecObjects(f"{URL}/other", memory)).names()
    runs = {"damaged": damaged, "reasons": reasons, "remaining": remaining}
    sys.stdout.write(json.dumps({**runs, "names": names, "step": saved.step, "wins": wins, "exists": exists}))


if __name__ == "__main__":
    main()
