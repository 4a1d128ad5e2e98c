"""A stream with a state in the workers of torchdata's loader; the iterator has the state, not the dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

from frameworks.wild import common
from frameworks.wild.stream import train

LENGTH = 31


class Numbers:
    """Iterates over a worker's numbers."""

    def __init__(self, samples: common.Samples, number: int, workers: int) -> None:
        self._samples, self._next, self._workers = samples, number, workers

    def __iter__(self) -> Numbers:
        return self

    def __next__(self) -> Any:
        if self._next >= LENGTH:
            raise StopIteration
        self._next += self._workers
        return self._samples[self._next - self._workers]

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


class Stream(IterableDataset[Any]):
    """Numbers in their order."""

    def __iter__(self) -> Numbers:
        worker = get_worker_info()
        assert worker is not None
        return Numbers(common.Samples(LENGTH, noise=0.05), worker.id, worker.num_workers)


def main(folder: Path) -> None:
    """Train."""
    common.start(folder)
    train(folder, StatefulDataLoader(Stream(), batch_size=common.BATCH, num_workers=3), LENGTH)
