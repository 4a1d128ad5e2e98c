"""What the scripts of habits share: data, marks for the harness, and a slow export."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch import distributed
from torch.utils.data import Dataset, default_collate

from spot_training import Interval

LENGTH = 24
BATCH = 4


class Samples(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """Numbered samples; ``noise`` draws from all three generators, as an augmentation does."""

    def __init__(self, length: int = LENGTH, *, noise: float = 0.0, begin: int = 0) -> None:
        self._length, self._noise, self._begin = length, noise, begin

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        number = index + self._begin
        features = torch.sin(number * torch.arange(1.0, 9.0))
        if self._noise:
            drawn = float(torch.rand(())) + random.random() + float(numpy.random.rand())
            features = features + self._noise * drawn
        return number, features, torch.cos(torch.tensor(float(number)))


def rank() -> int:
    """Return the number of this process."""
    return int(os.environ.get("RANK", "0"))


def ranks() -> int:
    """Return the number of processes."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Marks:
    """Lines in a file: the steps that are done, and where the script is."""

    def __init__(self, folder: Path) -> None:
        name = "marks" if rank() == 0 else f"marks-{rank()}"
        self._file = (folder / name).open("a", buffering=1)

    def step(self, loop: Any, pause: float = 0.004) -> None:
        """Mark a step of a loop as done."""
        time.sleep(pause)
        if not loop.repeating:
            self.at("step", loop.step + 1)

    def at(self, name: str, number: int = 0) -> None:
        """Mark where the script is."""
        self._file.write(f"{name} {number}\n")


def start(folder: Path, seed: int = 1) -> Marks:
    """Seed all generators; return the marks."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seeds in (random.seed, numpy.random.seed, torch.manual_seed):
        seeds(seed)
    if ranks() > 1:
        distributed.init_process_group("gloo")
    marks = Marks(folder)
    marks.at("start")
    return marks


def interval() -> Interval:
    """Return an interval that saves about every sixth step."""
    return Interval(max_seconds=0.05)


def network() -> torch.nn.Module:
    """Return a small network with batch statistics and dropout."""
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    )


def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Return the loss of a batch of ``Samples``."""
    _, features, target = batch
    return torch.nn.functional.mse_loss(model(features)[:, 0], target)


def validate(model: torch.nn.Module, marks: Marks, seconds: float = 0.03) -> float:
    """Return the loss on samples that are not trained on; slow."""
    marks.at("validation")
    model.eval()
    with torch.no_grad():
        rest = Samples(8, begin=LENGTH)
        loss = loss_of(model, default_collate([rest[index] for index in range(8)]))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.005)
    model.train()
    return float(loss)


def export(folder: Path, marks: Marks, models: Iterable[torch.nn.Module], curve: Any) -> None:
    """Write what the training is for: weights and curve."""
    if rank() > 0:
        return
    marks.at("export")
    digest = hashlib.sha256()
    for model in models:
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    time.sleep(0.05)
    (folder / ".final").write_text(json.dumps({"weights": digest.hexdigest(), "curve": curve}))
    (folder / ".final").rename(folder / "final")
