"""Batch sampling and the position of a data loader, to resume in the middle of an epoch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader

from spot_training.checkpointer import Checkpoint
from spot_training.errors import MismatchError, SpotTrainingError


class EpochBatches:
    """A batch sampler that can resume in the middle of an epoch: ``DataLoader(data, batch_sampler=...)``.

    The order depends on seed and epoch. ``batch_size`` is per rank; the position counts samples of all ranks
    together: an epoch started by two ranks can be finished by one, and each sample is still used once. The
    last step of an epoch is divided equally; a remainder of fewer samples than ranks is dropped for that
    epoch (never with one rank).
    """

    def __init__(self, length: int, batch_size: int, *, seed: int = 0, shuffle: bool = True) -> None:
        if length < 1 or batch_size < 1:
            raise SpotTrainingError(f"EpochBatches({length}, {batch_size}), allowed: both 1 or more")
        self.length, self.batch_size, self.seed, self.shuffle = length, batch_size, seed, shuffle
        self.rank, self.ranks = 0, 1
        self._epoch = self._begin = 0

    def share(self, rank: int, ranks: int) -> None:
        """Set the rank and the number of ranks; called by ``Loop``."""
        if self.length < ranks:
            raise SpotTrainingError(
                f"{self.length} samples for {ranks} ranks, allowed: at least one per rank"
            )
        self.rank, self.ranks = rank, ranks

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration in ``epoch``, after ``samples`` samples of all ranks."""
        self._epoch, self._begin = epoch, samples

    def after(self, samples: int) -> int:
        """Return the position one step after ``samples``."""
        return min(samples + self.batch_size * self.ranks, self.length)

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        whole, rest = divmod(self.length, self.batch_size * self.ranks)
        return whole + (rest >= self.ranks)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's indices, a list for each remaining step of the epoch."""
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + self._epoch)
        order = torch.randperm(self.length, generator=chance) if self.shuffle else torch.arange(self.length)
        position = self._begin
        while position < self.length:
            step = order[position : self.after(position)]
            mine = len(step) // self.ranks
            if mine:
                yield step[self.rank * mine : (self.rank + 1) * mine].tolist()
            position = self.after(position)


class LoaderPosition(Protocol):
    """The position of a data loader."""

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, if known."""

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        """Set the position from a checkpoint; raises ``MismatchError`` if it is of other data."""

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration at this position."""

    def after(self, samples: int) -> int:
        """Return the number of samples after one more step."""

    def identity(self) -> dict[str, Any]:
        """Return the values (JSON) that must not change for a position to stay valid."""

    def state(self) -> Any:
        """Return the state to save for this rank."""


class _IndexPosition:
    """The position of a loader over ``EpochBatches``: a number of samples."""

    def __init__(self, batches: EpochBatches, rank: int, ranks: int) -> None:
        batches.share(rank, ranks)
        self._batches = batches
        self.begin, self.after = batches.begin, batches.after

    @property
    def steps(self) -> int | None:
        return len(self._batches)

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        _refuse_other(saved, self.identity())

    def identity(self) -> dict[str, Any]:
        batches = self._batches
        return {"data": {"length": batches.length, "seed": batches.seed, "shuffle": batches.shuffle}}

    def state(self) -> Any:
        return None


class _LoaderStatePosition:
    """The position of a loader with its own state per rank: torchdata's ``StatefulDataLoader``."""

    def __init__(self, loader: Any, ranks: int) -> None:
        self._loader, self._ranks = loader, ranks

    @property
    def steps(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:  # an iterable without a length
            return None

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        _refuse_other(saved, self.identity())
        if saved.world_size != self._ranks:
            raise MismatchError(
                f"{saved.path} was saved by {saved.world_size} ranks, and a StatefulDataLoader cannot be"
                f" resharded; allowed: {self._ranks} ranks, or EpochBatches"
            )
        self._loader.load_state_dict(loader_state)

    def begin(self, epoch: int, samples: int) -> None:
        """Do nothing: the loader has its own position."""

    def after(self, samples: int) -> int:
        return 0

    def identity(self) -> dict[str, Any]:
        return {"data": "stateful"}

    def state(self) -> Any:
        return self._loader.state_dict()


def position_of(loader: DataLoader[Any], rank: int, ranks: int) -> LoaderPosition:
    """Return the position of a loader for this rank; make its workers ignore SIGTERM of other processes."""
    if loader.num_workers and not isinstance(loader.worker_init_fn, ParentSigtermOnly):
        loader.worker_init_fn = ParentSigtermOnly(loader.worker_init_fn)
    if isinstance(loader.batch_sampler, EpochBatches):
        return _IndexPosition(loader.batch_sampler, rank, ranks)
    if hasattr(loader, "load_state_dict"):
        return _LoaderStatePosition(loader, ranks)
    raise SpotTrainingError(
        "the position of this DataLoader cannot be saved; allowed: "
        "batch_sampler=EpochBatches(len(data), batch_size), or a StatefulDataLoader of torchdata"
    )


class ParentSigtermOnly:
    """A ``worker_init_fn`` that makes a loader's worker end only at SIGTERM from its parent.

    torchrun sends SIGTERM to a rank's whole process group; without workers a step could not get its next
    batch. Ignoring all SIGTERMs would hang the parent's exit, at which Python terminates and joins its
    workers.
    """

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Install the signal handling in a worker."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if self._then is not None:
            self._then(worker)


def _end_with_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def _refuse_other(saved: Checkpoint, now: dict[str, Any]) -> None:
    if saved.meta.get("data") not in (None, now["data"]):
        raise MismatchError(
            f"{saved.path} was saved with other data: {saved.meta.get('data')}, allowed: {now['data']}"
        )
