"""A stream with a state that outlasts an epoch, read by the training's own process, with accumulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from frameworks.wild import common
from frameworks.wild.stream import train

LENGTH = 32


class Stream(IterableDataset[Any]):
    """Numbers in an order that its own generator draws for each epoch; each rank's in turn."""

    def __init__(self) -> None:
        self._samples = common.Samples(LENGTH, noise=0.05)
        self._chance = torch.Generator().manual_seed(3)
        self._order: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        if not self._order:
            order = torch.randperm(LENGTH, generator=self._chance).tolist()
            self._order = order[common.rank() :: common.ranks()]
        while self._order:
            yield self._samples[self._order.pop()]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self._order, "chance": self._chance.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._order = list(state["order"])
        self._chance.set_state(state["chance"])


def main(folder: Path) -> None:
    """Train."""
    common.start(folder)
    train(folder, DataLoader(Stream(), batch_size=common.BATCH), LENGTH, accumulate=2)
