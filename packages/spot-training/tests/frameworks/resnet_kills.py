"""Kill examples/resnet50-cifar10 again and again and compare what comes out with an uninterrupted run.

Runs in the environment of TensorFlow: ``python -m frameworks.resnet_kills --folder F --terms 2
--kills 2``; prints JSON. Each start is a fork of this process, which has imported TensorFlow and done
nothing else. The script is the shipped one; it only saves more often.
"""

from __future__ import annotations

import argparse
import csv
import functools
import importlib
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2")
ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "examples/resnet50-cifar10"))
train: Any = importlib.import_module("train")

from spot_training import Interval  # noqa: E402

FORK = multiprocessing.get_context("fork")
BATCH, EPOCHS = 4, 4
MAX_ROWS = 5
"""Rows of the log, one a batch, from a start to a signal."""


class Job:
    """The training in a folder, started as often as needed."""

    def __init__(self, folder: Path, images: int) -> None:
        folder.mkdir(parents=True)
        self.images, self.steps = images, images // BATCH * EPOCHS
        self.folder, self.log, self.weights = folder, folder / "training_log.csv", folder / "weights.npz"

    def start(self) -> Any:
        process = FORK.Process(target=self._main)
        process.start()
        return process

    def rows(self) -> int:
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0

    def _main(self) -> None:
        output = (self.folder / "output").open("a")
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.environ.update(
            GPU_SPOT_ARTIFACTS=str(self.folder), GPU_SPOT_CHECKPOINTS=str(self.folder / "checkpoints")
        )
        train.SpotModel = functools.partial(train.SpotModel, interval=Interval(max_seconds=2), keep=2)
        numbers = {"--synthetic": self.images, "--batch-size": BATCH, "--epochs": EPOCHS, "--log-every": 1}
        sys.argv = ["train.py", *(str(part) for pair in numbers.items() for part in pair)]
        train.main()

    def faults(self) -> list[str]:
        """Return what is wrong with the log: batches that are missing, twice, or out of order."""
        with self.log.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if not row["val_accuracy"]]  # rows of batches
        steps = [int(row["step"]) for row in rows]
        return [] if steps == list(range(1, self.steps + 1)) else [f"{self.folder.name}: steps {steps}"]

    def result(self) -> tuple[bytes, bytes]:
        return self.weights.read_bytes(), self.log.read_bytes()


def run(folder: Path, terms: int, kills: int, seed: int, images: int) -> dict[str, Any]:
    """Run once without a signal, then with all signals, in random order at random moments."""
    reference = Job(folder / "reference", images)
    process = reference.start()
    process.join()
    assert process.exitcode == 0, (reference.folder / "output").read_text()[-2000:]
    chance = random.Random(seed)
    signals = [signal.SIGTERM] * terms + [signal.SIGKILL] * kills
    chance.shuffle(signals)
    counts: Counter[str] = Counter(sigterm=0, sigkill=0, starts=0, runs=0, mismatches=0)
    faults: list[str] = []
    while signals:
        counts["runs"] += 1
        job = Job(folder / f"run-{counts['runs']}", images)
        while not job.weights.exists():
            before, process = job.rows(), job.start()
            counts["starts"] += 1
            rows = chance.randrange(MAX_ROWS) if signals else job.steps * 2
            while process.is_alive() and job.rows() <= before + rows:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.4) if signals else 0)
            if signals and process.is_alive():
                number = signals.pop()
                counts[number.name.lower()] += 1
                os.kill(process.pid, number)
            else:
                number = None
            process.join()
            if number != signal.SIGKILL and process.exitcode:
                raise SystemExit(
                    f"exit code {process.exitcode}: {(job.folder / 'output').read_text()[-2000:]}"
                )
        counts["mismatches"] += job.result() != reference.result()
        faults += job.faults()
    kills = counts["sigterm"] + counts["sigkill"]
    columns = reference.log.read_text().split("\n")[0]
    return {**counts, "kills": kills, "steps": reference.steps, "columns": columns, "faults": faults}


def main() -> None:
    """Print the result of the run that the arguments describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--terms", type=int, required=True)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=64)
    arguments = parser.parse_args()
    result = run(arguments.folder, arguments.terms, arguments.kills, arguments.seed, arguments.images)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
