"""Batch sampling and the position of a data loader, to resume in the middle of an epoch."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from spot_training.checkpointer import Checkpoint
from spot_training.errors import MismatchError, SpotTrainingError


class EpochBatches:
    """A batch sampler that can resume in the middle of an epoch: ``DataLoader(data, batch_sampler=...)``.

    The order depends on seed and epoch. ``batch_size`` is per rank; the position counts samples of all ranks
    together: an epoch started by two ranks can be finished by one, and each sample is still used once. The
    last step of an epoch is divided equally; a remainder of fewer samples than ranks is dropped for that
    epoch (never with one rank).

    With ``per_rank=False`` it is of all ranks together: each step has the same samples at any number of
    ranks, and no remainder is dropped. A rank without a sample of a step repeats one; multiply losses by the
    weights of ``Loop.parts``.
    """

    def __init__(
        self, length: int, batch_size: int, *, seed: int = 0, shuffle: bool = True, per_rank: bool = True
    ) -> None:
        if length < 1 or batch_size < 1:
            raise SpotTrainingError(f"EpochBatches({length}, {batch_size}), allowed: both 1 or more")
        self.length, self.batch_size, self.seed, self.shuffle = length, batch_size, seed, shuffle
        self.per_rank = per_rank
        self.rank, self.ranks = 0, 1
        self._epoch = self._begin = 0

    def share(self, rank: int, ranks: int) -> None:
        """Set the rank and the number of ranks; called by ``Loop``."""
        if self.per_rank and self.length < ranks:
            raise SpotTrainingError(
                f"{self.length} samples for {ranks} ranks, allowed: at least one per rank"
            )
        self.rank, self.ranks = rank, ranks

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration in ``epoch``, after ``samples`` samples of all ranks."""
        self._epoch, self._begin = epoch, samples

    def after(self, samples: int) -> int:
        """Return the position one step after ``samples``."""
        return min(samples + self._step_size, self.length)

    @property
    def _step_size(self) -> int:
        return self.batch_size * (self.ranks if self.per_rank else 1)

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return self.steps_after(0)

    def steps_after(self, samples: int) -> int:
        """Return the number of steps of an epoch after ``samples`` samples of all ranks."""
        whole, rest = divmod(self.length - samples, self._step_size)
        return whole + (rest >= (self.ranks if self.per_rank else 1))

    def part_of(self, samples: int) -> tuple[int, int]:
        """Return how many samples the step after ``samples`` has, and how many of them are this rank's."""
        size = self.after(samples) - samples
        if self.per_rank:
            size -= size % self.ranks
        begin, end = self._bounds(size)
        return size, end - begin

    def _bounds(self, size: int) -> tuple[int, int]:
        """Return where this rank's part of a step's samples begins and ends."""
        return size * self.rank // self.ranks, size * (self.rank + 1) // self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's indices, a list for each remaining step of the epoch."""
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + self._epoch)
        order = torch.randperm(self.length, generator=chance) if self.shuffle else torch.arange(self.length)
        position = self._begin
        while position < self.length:
            step = order[position : self.after(position)].tolist()
            size, _ = self.part_of(position)
            begin, end = self._bounds(size)
            if size:
                yield step[begin:end] or step[:1]
            position = self.after(position)


class LoaderPosition(Protocol):
    """The position of a data loader."""

    starts_epochs: bool
    """Whether an epoch can start in another process: its order does not depend on the loader's state."""

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, if known."""

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        """Set the position from a checkpoint; raises ``MismatchError`` if it is of other data."""

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration at this position."""

    def iterate(self, loader: DataLoader[Any], accumulate: int) -> Iterator[Any]:
        """Return an iterator over the rest of the epoch; the loader's workers start in this call.

        ``accumulate``: the batches of an optimizer step; ``remaining`` is known so many before the end.
        """

    def after(self, samples: int) -> int:
        """Return the number of samples after one more step."""

    def remaining(self, batch: int, samples: int) -> int | None:
        """Return the steps of the epoch after ``batch`` steps and ``samples`` samples; None if unknown."""

    def identity(self) -> dict[str, Any]:
        """Return the values (JSON) that must not change for a position to stay valid."""

    def state(self) -> Any:
        """Return the state to save for this rank."""


class _IndexPosition:
    """The position of a loader over ``EpochBatches``: a number of samples."""

    starts_epochs = True

    def __init__(
        self, batches: EpochBatches, rank: int, ranks: int, randomness: BatchRandomness | None
    ) -> None:
        batches.share(rank, ranks)
        self.batches = batches
        self._randomness = randomness
        self.after = batches.after

    def begin(self, epoch: int, samples: int) -> None:
        self.batches.begin(epoch, samples)
        if self._randomness is not None:
            self._randomness.epoch[0] = epoch

    def iterate(self, loader: DataLoader[Any], accumulate: int) -> Iterator[Any]:
        return iter(loader)

    @property
    def steps(self) -> int | None:
        return len(self.batches)

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        refuse_other(saved, self.identity())

    def remaining(self, batch: int, samples: int) -> int | None:
        return self.batches.steps_after(samples)

    def identity(self) -> dict[str, Any]:
        batches = self.batches
        return {"data": {"length": batches.length, "seed": batches.seed, "shuffle": batches.shuffle}}

    def state(self) -> Any:
        return None


class _LoaderStatePosition:
    """The position of a loader with its own state per rank: torchdata's ``StatefulDataLoader``."""

    starts_epochs = False

    def __init__(self, loader: Any, ranks: int, randomness: BatchRandomness | None) -> None:
        self._loader, self._ranks, self._randomness = loader, ranks, randomness

    @property
    def steps(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:  # an iterable without a length
            return None

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        refuse_other(saved, self.identity())
        if saved.world_size != self._ranks:
            raise MismatchError(
                f"{saved.path} was saved by {saved.world_size} ranks, and a StatefulDataLoader cannot be"
                f" resharded; allowed: {self._ranks} ranks, or EpochBatches"
            )
        self._loader.load_state_dict(loader_state)

    def begin(self, epoch: int, samples: int) -> None:
        """Do nothing but set the epoch of random numbers: the loader has its own position."""
        if self._randomness is not None:
            self._randomness.epoch[0] = epoch

    def iterate(self, loader: DataLoader[Any], accumulate: int) -> Iterator[Any]:
        return iter(loader)

    def after(self, samples: int) -> int:
        return 0

    def remaining(self, batch: int, samples: int) -> int | None:
        return None if (steps := self.steps) is None else steps - batch

    def identity(self) -> dict[str, Any]:
        return {"data": "stateful"}

    def state(self) -> Any:
        return self._loader.state_dict()


def position_of(
    loader: DataLoader[Any], rank: int, ranks: int, *, processes: int | None = None
) -> LoaderPosition:
    """Return the position of a loader for this rank, and prepare the loader's workers (``WorkerStart``).

    ``rank``, ``ranks``: of those that take different batches; ``processes``: all (default: ``ranks``).
    """
    kind = type(loader).__name__
    if kind == "_FabricDataLoader":  # draws random numbers when its first batch is requested
        raise SpotTrainingError(
            "a loader of fabric.setup_dataloaders cannot be resumed; allowed: the DataLoader itself, and"
            " fabric.to_device(batch)"
        )
    if not hasattr(loader, "worker_init_fn"):
        raise SpotTrainingError(f"a {kind} has no position; allowed: a DataLoader of torch.utils.data")
    batches, is_stream = loader.batch_sampler, isinstance(loader.dataset, IterableDataset)
    start = loader.worker_init_fn
    if loader.num_workers and not isinstance(start, WorkerStart):
        start = loader.worker_init_fn = WorkerStart(start, None if is_stream else _randomness(loader))
    randomness = start.randomness if isinstance(start, WorkerStart) else None
    if is_stream:
        from spot_training.torch.streams.position import StreamPosition  # which needs this module

        return StreamPosition(loader, rank, ranks)
    if isinstance(batches, EpochBatches):
        return _IndexPosition(batches, rank, ranks, randomness)
    if hasattr(loader, "load_state_dict"):
        return _LoaderStatePosition(loader, processes or ranks, randomness)
    raise SpotTrainingError(
        "the position of this DataLoader cannot be saved; allowed: "
        "batch_sampler=EpochBatches(len(data), batch_size), a StatefulDataLoader of torchdata, or an"
        " IterableDataset"
    )


def _randomness(loader: DataLoader[Any]) -> BatchRandomness | None:
    """Return the random numbers of a map-style loader's workers, seeded as its order is."""
    if isinstance(loader.batch_sampler, EpochBatches):
        return BatchRandomness(loader.batch_sampler.seed)
    if loader.batch_sampler is None:
        return None  # it requests single samples, not lists of them
    return BatchRandomness(0 if loader.generator is None else loader.generator.initial_seed())


@contextmanager
def sigterm_blocked() -> Iterator[None]:
    """Block SIGTERM in this thread; processes that are started inside inherit that (sigprocmask(2)).

    A loader's worker handles SIGTERM when ``worker_init_fn`` runs: one that comes before would end it. A
    SIGTERM of this process is delivered afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerStart:
    """A ``worker_init_fn``: the worker ends only at SIGTERM from its parent, and its random numbers resume.

    torchrun sends SIGTERM to a rank's whole process group; without workers a step could not get its next
    batch. Ignoring all SIGTERMs would hang the parent's exit, at which Python terminates and joins its
    workers.
    """

    def __init__(
        self, then: Callable[[int], None] | None = None, randomness: BatchRandomness | None = None
    ) -> None:
        self._then = then
        self.randomness = randomness

    def __call__(self, worker: int) -> None:
        """Prepare a worker."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if self._then is not None:
            self._then(worker)
        information = get_worker_info()
        if self.randomness is not None and information is not None:
            self.randomness.install(information.dataset)


class BatchRandomness:
    """Random numbers in a loader's workers that depend on seed, epoch and batch only, not on the worker.

    So a dataset that augments its samples by ``random``, ``numpy.random`` or ``torch`` draws the same numbers
    for the rest of an epoch in another process.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        """Set by the training's process before each epoch; persistent workers see it."""

    def install(self, dataset: Any) -> None:
        """Let a dataset, in this worker, seed before each batch; one whose class is fixed stays as it is."""
        base = type(dataset)

        def fetch(samples: Any, indices: list[int]) -> Any:
            self.set(indices[0])
            if hasattr(base, "__getitems__"):
                return base.__getitems__(samples, indices)
            return [samples[index] for index in indices]

        with contextlib.suppress(TypeError):
            dataset.__class__ = type(base.__name__, (base,), {"__getitems__": fetch})

    def set(self, key: object) -> None:
        """Seed this process's random number generators for a batch, or for a sample of a stream."""
        text = f"{self.seed} {int(self.epoch[0])} {key}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        random.seed(number)
        torch.manual_seed(number)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(number % 2**32)


def _end_with_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def refuse_other(saved: Checkpoint, now: dict[str, Any]) -> None:
    """Raise ``MismatchError`` if a checkpoint inside an epoch has another ``LoaderPosition.identity``."""
    if saved.meta.get("data") not in (None, now["data"]):
        raise MismatchError(
            f"{saved.path} was saved with other data: {saved.meta.get('data')}, allowed: {now['data']}"
        )
