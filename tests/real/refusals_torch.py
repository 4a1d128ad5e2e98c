"""What ``spot_training.torch`` says when it refuses: JSON, by case. Runs in PyTorch's environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval, SpotTrainingError
from spot_training.torch import EpochBatches, Loop
from spot_training.torch.state import write

DATA = TensorDataset(torch.arange(8.0)[:, None])


def train(folder: Path, batches: Any = None, *, width: int = 2, epochs: int = 1) -> list[list[float]]:
    """Train for some epochs; return the samples that were seen."""
    model = torch.nn.Linear(1, width)
    loop = Loop(folder, keep=2, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    loader = batches or DataLoader(DATA, batch_sampler=EpochBatches(8, 4))
    seen = [one.flatten().tolist() for _ in loop.epochs(epochs) for (one,) in loop.batches(loader)]
    loop.close()
    return seen


def train_one_step(folder: Path) -> None:
    """Train and save one of an epoch's two steps; between two epochs other data would be allowed."""
    model = torch.nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    interval = Interval(max_seconds=1e-6, overhead=0.999999)
    loop = Loop(folder, keep=2, asynchronous=False, interval=interval, model=model, optimizer=optimizer)
    next(iter(loop.epochs(1)))
    batches = loop.batches(DataLoader(DATA, batch_sampler=EpochBatches(8, 4)))
    next(batches)
    next(batches)
    loop.close()


def refused(case: Any) -> str:
    """Return what is said."""
    try:
        return f"nothing: {case()}"
    except SpotTrainingError as error:
        return f"{type(error).__name__}: {error}"


def main(folder: Path) -> dict[str, Any]:
    """Try all of it."""
    results = {
        "plain loader": refused(lambda: train(folder / "a", DataLoader(DATA, batch_size=4, shuffle=True)))
    }
    results["no parts"] = refused(Loop)
    train(folder / "b")
    results["another model"] = refused(lambda: train(folder / "b", width=3))
    other = DataLoader(DATA, batch_sampler=EpochBatches(8, 4, seed=1))
    train_one_step(folder / "c")
    results["other data"] = refused(lambda: train(folder / "c", other))
    results["unreadable"] = refused(lambda: write(folder / "x.pt", {"own": SpotTrainingError("x")}))
    train(folder / "d")
    train(folder / "d", epochs=2)
    newest = max((folder / "d").glob("step-*/rank-00000/parts.pt"))
    newest.write_bytes(newest.read_bytes()[:-1])
    results["newest truncated"] = len(train(folder / "d", epochs=2))
    os.environ["WORLD_SIZE"] = "2"
    results["no process group"] = refused(lambda: train(folder / "e"))
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
