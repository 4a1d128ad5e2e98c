"""A stream without a state or a length: shuffled in a buffer, augmented in workers, of uneven shards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from frameworks.wild import common
from spot_training.torch import Loop

EPOCHS, LENGTH = 4, 42


class Stream(IterableDataset[Any]):
    """Numbers in an order by epoch: each rank's in turn; two of three of those for the first worker."""

    def __init__(self) -> None:
        self._epoch = 0
        self._samples = common.Samples(LENGTH, noise=0.05)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        numbers = random.Random(self._epoch).sample(range(LENGTH), LENGTH)[common.rank() :: common.ranks()]
        buffer: list[int] = []
        for place, number in enumerate(numbers):
            if worker is None or (place % 3 == 2) == (worker.id == 1):
                buffer.append(number)
            if len(buffer) > 4:
                yield self._samples[buffer.pop(random.randrange(len(buffer)))]
        while buffer:
            yield self._samples[buffer.pop(random.randrange(len(buffer)))]


def everywhere(ids: list[int]) -> list[int]:
    """Return the samples of all ranks."""
    gathered: list[Any] = [ids]
    if common.ranks() > 1:
        gathered = [None] * common.ranks()
        distributed.all_gather_object(gathered, ids)
    return [number for of_rank in gathered for number in of_rank]


def train(folder: Path, loader: Any, length: int, *, accumulate: int = 1) -> None:
    """Train; the curve has the samples of each epoch."""
    marks = common.Marks(folder)
    model: Any = common.network()
    if common.ranks() > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loop = Loop(folder / "checkpoints", interval=common.interval(), model=model, optimizer=optimizer)
    for _ in loop.epochs(EPOCHS):
        marks.at("workers")
        for number, batch in loop.enumerate(loader, accumulate=accumulate):
            loss = common.loss_of(model, batch)
            loss.backward()
            if (number + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            loop.mean("loss", loss)
            loop.state.setdefault("ids", []).extend(batch[0].tolist())
            marks.step(loop)
        order = everywhere(loop.state.pop("ids"))
        if sorted(order) != list(range(length)):
            raise SystemExit(f"samples of an epoch: {sorted(order)}")
        loop.state.setdefault("curve", []).append([loop.mean("loss"), common.validate(model, marks), order])
    common.export(folder, marks, [getattr(model, "module", model)], loop.state["curve"])
    if common.ranks() > 1:
        distributed.destroy_process_group()


def main(folder: Path) -> None:
    """Train."""
    common.start(folder)
    train(folder, DataLoader(Stream(), batch_size=common.BATCH, num_workers=2), LENGTH)
