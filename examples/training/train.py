"""A small fault-tolerant training script: standard library only, reproducible to the bit.

It learns the points of ``$GPU_SPOT_DATASETS/*.csv`` (x, y, label), or generated points if there are none.
Replace the mathematics by your framework; your script needs the rest too.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import random
import signal
import time
from pathlib import Path
from types import FrameType

HIDDEN, BATCH, RATE, CHECKPOINTS = 12, 32, 0.3, 3
Points = list[tuple[float, float, float]]


class Stop:
    """Whether SIGTERM was received; the loop checks it between two steps."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


def points(folder: Path) -> Points:
    """Return the dataset's points, else a thousand generated ones: inside a circle or not."""
    rows = [
        row for path in sorted(folder.rglob("*.csv")) for row in csv.reader(path.read_text().splitlines())
    ]
    if rows:
        return [(float(x), float(y), float(label)) for x, y, label in rows]
    chance = random.Random(7)
    coordinates = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(1000)]
    return [(x, y, float(x * x + y * y < 0.5)) for x, y in coordinates]


def batch(data: Points, step: int) -> Points:
    """Return the points of a step: each once per epoch, in an order that depends only on the step."""
    steps = max(1, len(data) // BATCH)
    order = random.Random(f"epoch {step // steps}").sample(range(len(data)), len(data))
    begin = step % steps * BATCH
    return [data[index] for index in order[begin : begin + BATCH]]


def fresh() -> list[list[float]]:
    """Return initial weights: of x, y, bias and output for each hidden unit."""
    chance = random.Random(1)
    return [[chance.gauss(0, 1) for _ in range(4)] for _ in range(HIDDEN)]


def descend(weights: list[list[float]], some: Points) -> float:
    """Take one gradient descent step, in place; return the mean loss before it."""
    loss, change = 0.0, [[0.0] * 4 for _ in weights]
    for x, y, label in some:
        active = [math.tanh(a * x + b * y + c) for a, b, c, _ in weights]
        guess = 1 / (1 + math.exp(-sum(h * unit[3] for h, unit in zip(active, weights, strict=True))))
        loss -= math.log(max(guess if label else 1 - guess, 1e-12))
        for h, unit, delta in zip(active, weights, change, strict=True):
            slope = (guess - label) * unit[3] * (1 - h * h)
            for index, value in enumerate((slope * x, slope * y, slope, (guess - label) * h)):
                delta[index] += value / len(some)
    for unit, delta in zip(weights, change, strict=True):
        unit[:] = [w - RATE * d for w, d in zip(unit, delta, strict=True)]
    return loss / len(some)


def write(path: Path, text: str) -> None:
    """Replace a file atomically and durably: it is complete even if the instance ends right after."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def save(folder: Path, step: int, weights: list[list[float]]) -> None:
    """Write a checkpoint, then remove the oldest."""
    state = json.dumps({"step": step, "weights": weights})
    digest = hashlib.sha256(state.encode()).hexdigest()
    write(folder / f"step-{step:08d}.json", json.dumps({"sha256": digest, "state": state}))
    for old in sorted(folder.glob("step-*.json"))[:-CHECKPOINTS]:
        old.unlink()


def resume(folder: Path) -> tuple[int, list[list[float]]]:
    """Return step and weights of the newest valid checkpoint, else step 0 and initial weights."""
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            saved = json.loads(path.read_text())
            if hashlib.sha256(saved["state"].encode()).hexdigest() == saved["sha256"]:
                state = json.loads(saved["state"])
                return state["step"], state["weights"]
        except (ValueError, KeyError):
            pass
        print(f"{path.name} is damaged, using an older checkpoint", flush=True)
    return 0, fresh()


def main() -> None:
    """Train to the last step or until SIGTERM; save in both cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--checkpoint-every", type=int, default=200)
    parser.add_argument(
        "--step-seconds", type=float, default=0.008, help="minimum duration of a step, to simulate a GPU"
    )
    arguments = parser.parse_args()
    stop = Stop()  # before any slow initialisation: from here on SIGTERM does not kill the process
    checkpoints = Path(os.environ.get("GPU_SPOT_CHECKPOINTS", "checkpoints"))
    results = Path(os.environ.get("GPU_SPOT_ARTIFACTS", "artifacts"))
    for folder in (checkpoints, results):
        folder.mkdir(parents=True, exist_ok=True)
    data = points(Path(os.environ.get("GPU_SPOT_DATASETS", "datasets")))
    first, weights = resume(checkpoints)
    print(f"{len(data)} points, from step {first} of {arguments.steps}", flush=True)
    step, loss = first, math.nan
    while step < arguments.steps and not stop.requested:
        time.sleep(arguments.step_seconds)
        loss = descend(weights, batch(data, step))
        step += 1
        if step % 25 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
        if step % arguments.checkpoint_every == 0:
            save(checkpoints, step, weights)
    save(checkpoints, step, weights)
    if step < arguments.steps:
        print(f"stopped by SIGTERM: saved at step {step}", flush=True)
        return
    write(results / "model.json", json.dumps({"steps": step, "weights": weights}) + "\n")
    if done := os.environ.get("GPU_SPOT_DONE"):
        Path(done).touch()  # exit code 0 after SIGTERM means "saved", this file means "job finished"
    print(f"done after step {step}", flush=True)


if __name__ == "__main__":
    main()
