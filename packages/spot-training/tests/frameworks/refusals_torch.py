"""What ``spot_training.torch`` says when it refuses: JSON, by case. Runs in PyTorch's environment."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from spot_training import Interval, SpotTrainingError
from spot_training.torch import EpochBatches, Loop
from spot_training.torch.state import write

DATA = TensorDataset(torch.arange(8.0)[:, None])


class Numbers(IterableDataset[Any]):
    """A stream without a state."""

    def __init__(self, begin: int = 0) -> None:
        self._begin = begin

    def __iter__(self) -> Any:
        return iter([(torch.tensor([float(number)]),) for number in range(self._begin, self._begin + 8)])


class StatefulNumbers(Numbers):
    """A stream with a state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class CountedNumbers(StatefulNumbers):
    """A stream whose state needs what a ``Loop`` does not know."""

    def state_dict(self, shards: int) -> dict[str, Any]:  # type: ignore[override]
        return {"shards": shards}


def train(folder: Path, batches: Any = None, *, width: int = 2, epochs: int = 1) -> list[list[float]]:
    """Train for some epochs; return the samples that were seen."""
    model = torch.nn.Linear(1, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = Loop(folder, keep=2, model=model, optimizer=optimizer, audit="off")  # it takes no steps
    loader = DataLoader(DATA, batch_sampler=EpochBatches(8, 4)) if batches is None else batches
    seen = [one.flatten().tolist() for _ in loop.epochs(epochs) for (one,) in loop.batches(loader)]
    loop.close()
    return seen


def train_one_step(folder: Path, loader: Any = None) -> list[float]:
    """Train and save one of an epoch's two steps; between two epochs other data would be allowed.

    Returns the samples of the other one.
    """
    model = torch.nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    interval = Interval(max_seconds=1e-6, overhead=0.999999)
    parts: Any = {"model": model, "optimizer": optimizer}
    loop = Loop(folder, keep=2, asynchronous=False, interval=interval, audit="off", **parts)
    next(iter(loop.epochs(1)))
    if loader is None:
        loader = DataLoader(DATA, batch_sampler=EpochBatches(8, 4))
    batches = loop.batches(loader)
    next(batches)
    (following,) = next(batches)
    loop.close()
    return [float(number) for number in following.flatten()]


def said(case: Any) -> str:
    """Return what is printed on standard error."""
    with contextlib.redirect_stderr(io.StringIO()) as text:
        case()
    return text.getvalue()


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
    again = said(lambda: train_one_step(folder / "s", DataLoader(Numbers(), batch_size=4)))
    results["a stream that is read again"] = again.splitlines()[0]
    changed = said(lambda: train(folder / "s", DataLoader(Numbers(3), batch_size=4)))
    results["a stream that has changed"] = changed.splitlines()[-1]
    stateful = DataLoader(StatefulNumbers(), batch_size=4, num_workers=1, persistent_workers=True)
    results["workers that stay"] = refused(lambda: train(folder / "t", stateful))
    results["a state with arguments"] = refused(lambda: train(folder / "u", DataLoader(CountedNumbers())))
    results["no DataLoader"] = refused(lambda: train(folder / "v", [1]))
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
