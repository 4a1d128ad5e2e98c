"""The usual script that habits are added to."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch import nn
from torch.utils.data import DataLoader, Dataset

from frameworks.habits.player import Start
from frameworks.habits.table import EPOCHS, INTERVAL
from spot_training.torch import EpochBatches, Loop

torch.set_num_threads(1)


class Samples(Dataset[Any]):
    def __init__(self, length: int = 24, begin: int = 0, noise: Callable[[], float] | None = None) -> None:
        self.length, self.begin, self.noise = length, begin, noise

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        number = index + self.begin
        x = torch.sin(number * torch.arange(1.0, 9.0))
        return number, x + 0.1 * self.noise() if self.noise else x, torch.cos(torch.tensor(float(number)))


class Job:
    """The usual script: a small network with batch statistics, SGD with momentum, 18 steps."""

    def __init__(self, start: Start, data: Any = None, workers: int = 0, **parts: Any) -> None:
        torch.manual_seed(1)
        random.seed(2)
        numpy.random.seed(3)
        self.start, self.parts = start, parts
        self.model = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)
        )
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.loader = loader(data or Samples(), workers=workers)

    def loop(self, **parts: Any) -> Any:
        given = {"model": self.model, "optimizer": self.optimizer, **parts}
        audit = os.environ.get("HABITS_AUDIT", "stop")
        return Loop(interval=INTERVAL, asynchronous=False, settings={}, audit=audit, **given)

    def loss(self, batch: Any) -> torch.Tensor:
        return loss_of(self.model, batch)

    def step(self, batch: Any) -> float:
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.start.tick()
        return float(loss)

    def batches(self, loop: Any) -> Iterator[Any]:
        for _ in loop.epochs(EPOCHS):
            yield from loop.batches(self.loader)

    def train(
        self,
        loop: Any,
        before: Callable[[int], object] = lambda epoch: None,
        through: Callable[[Any], Any] = iter,
    ) -> None:
        for epoch in loop.epochs(EPOCHS):
            before(epoch)
            for batch in through(loop.batches(self.loader)):
                self.step(batch)


def loader(data: Any, workers: int = 0, seed: int = 0, **options: Any) -> DataLoader[Any]:
    batches = EpochBatches(len(data), 4, seed=seed, **options)
    return DataLoader(data, batch_sampler=batches, num_workers=workers)


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[1])[:, 0], batch[2])
