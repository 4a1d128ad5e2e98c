"""Batch sampling, the position of a data loader in an epoch, and batches in parts that fit into memory."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, IterableDataset

from spot_training import rehearsal
from spot_training.errors import MismatchError, SpotTrainingError
from spot_training.storage.manifest import Checkpoint
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loaders.samples import refuse_other_samples, signature
from spot_training.torch.loaders.workers import BatchRandomness, prepare_workers
from spot_training.torch.streams.position import StreamPosition

_signatures: Final[weakref.WeakKeyDictionary[DataLoader[Any], Any]] = weakref.WeakKeyDictionary()


class EpochBatches:
    """A batch sampler that can resume in the middle of an epoch: ``DataLoader(data, batch_sampler=...)``.

    The order depends on seed and epoch. ``batch_size`` is per rank; the position counts samples of all ranks:
    an epoch started by two ranks can be finished by one, and each sample is used once. The last step of an
    epoch is divided equally; a remainder of fewer samples than ranks is dropped for that epoch.

    With ``per_rank=False`` it is of all ranks together: each step has the same samples at any number of
    ranks. A rank without a sample repeats one; multiply losses by the weights of ``Loop.parts``.
    """

    def __init__(
        self, length: int, batch_size: int, *, seed: int = 0, shuffle: bool = True, per_rank: bool = True
    ) -> None:
        if length < 1 or batch_size < 1:
            raise SpotTrainingError(
                f"EpochBatches needs a length and a batch size of 1 or more, not {length} and {batch_size}"
            )
        if rehearsal.current() is not None:
            length = min(length, rehearsal.EPOCH_STEPS * batch_size)
        self.length, self.batch_size, self.seed, self.shuffle = length, batch_size, seed, shuffle
        self.per_rank = per_rank
        self.rank, self.ranks = 0, 1
        self._epoch = self._begin = 0

    def share(self, rank: int, ranks: int) -> None:
        """Set the rank and the number of ranks; called by ``Loop``."""
        if self.per_rank and self.length < ranks:
            raise SpotTrainingError(
                f"{ranks} ranks need at least one sample each, and there are {self.length}"
            )
        self.rank, self.ranks = rank, ranks

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration in ``epoch``, after ``samples`` samples of all ranks."""
        self._epoch, self._begin = epoch, samples

    def after(self, samples: int, steps: int = 1) -> int:
        """Return the position so many steps after ``samples``."""
        return min(samples + steps * self._step_size, self.length)

    @property
    def _step_size(self) -> int:
        return self.batch_size * (self.ranks if self.per_rank else 1)

    def __len__(self) -> int:
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
        return self.indices(self._epoch, self._begin)

    def indices(self, epoch: int, position: int) -> Iterator[list[int]]:
        """Yield this rank's indices for each step of ``epoch`` after ``position`` samples of all ranks."""
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(self.length, generator=chance) if self.shuffle else torch.arange(self.length)
        while position < self.length:
            step = order[position : self.after(position)].tolist()
            size, _ = self.part_of(position)
            begin, end = self._bounds(size)
            if size:
                yield step[begin:end] or step[:1]
            position = self.after(position)


class _IndexPosition(LoaderPosition):
    """The position of a loader over ``EpochBatches``: a number of samples."""

    def __init__(
        self, loader: DataLoader[Any], rank: int, ranks: int, randomness: BatchRandomness | None
    ) -> None:
        assert isinstance(loader.batch_sampler, EpochBatches)
        self.batches: EpochBatches = loader.batch_sampler
        self.batches.share(rank, ranks)
        self.randomness, self.loader = randomness, loader

    def begin(self, epoch: int, samples: int) -> None:
        super().begin(epoch, samples)
        self.batches.begin(epoch, samples)

    def after(self, samples: int) -> int:
        return self.batches.after(samples)

    def iterate(self, accumulate: int) -> Iterator[Any]:
        batches: Iterator[Any] = iter(self.loader)  # the order is drawn in this call
        self.batches.begin(0, 0)  # the script may iterate over the loader, too: it is whole there
        return batches

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        super().restore(saved, loader_state)
        refuse_other_samples(saved, self.identity()["samples"])

    def remaining(self, batch: int, samples: int) -> int | None:
        return self.batches.steps_after(samples)

    def following(self, epoch: int, samples: int) -> list[int] | None:
        return next(self.batches.indices(epoch, samples), None)

    def identity(self) -> dict[str, Any]:
        batches, loader = self.batches, self.loader
        data = {"length": batches.length, "seed": batches.seed, "shuffle": batches.shuffle}
        if loader not in _signatures:
            _signatures[loader] = signature(loader, batches.length, batches.seed)
        return {"data": data, "samples": _signatures[loader]}


class _TogetherPosition(_IndexPosition):
    """Of several loaders, a batch of each in a step: the first counts, and the shortest ends the epoch."""

    def __init__(self, positions: Sequence[Any]) -> None:
        if not all(isinstance(position, _IndexPosition) for position in positions):
            raise SpotTrainingError("loop.batches() got several loaders; use EpochBatches in each")
        vars(self).update(vars(positions[0]))
        self._all = positions

    @property
    def steps(self) -> int | None:
        return min(len(position.batches) for position in self._all)

    def begin(self, epoch: int, samples: int) -> None:
        batch = self.batches.steps_after(0) - self.batches.steps_after(samples)
        for position in self._all:
            _IndexPosition.begin(position, epoch, position.batches.after(0, batch))

    def iterate(self, accumulate: int) -> Iterator[Any]:
        return zip(*[position.iterate(accumulate) for position in self._all], strict=False)

    def remaining(self, batch: int, samples: int) -> int | None:
        return (self.steps or 0) - batch

    def following(self, epoch: int, samples: int) -> list[int] | None:
        return None


class _LoaderStatePosition(LoaderPosition):
    """The position of a loader with its own state per rank: torchdata's ``StatefulDataLoader``."""

    starts_epochs = False

    def __init__(self, loader: Any, ranks: int, randomness: BatchRandomness | None) -> None:
        self.loader, self._ranks, self.randomness = loader, ranks, randomness

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        super().restore(saved, loader_state)
        if saved.world_size != self._ranks:
            raise MismatchError(
                f"{saved.path} was saved by {saved.world_size} ranks, and a StatefulDataLoader cannot "
                f"be resharded; run as many ranks, not {self._ranks}, or use EpochBatches"
            )
        self.loader.load_state_dict(loader_state)

    def identity(self) -> dict[str, Any]:
        return {"data": "stateful"}

    def state(self) -> Any:
        return self.loader.state_dict()


def position_of_all(
    loaders: Sequence[DataLoader[Any]], rank: int, ranks: int, processes: int
) -> LoaderPosition:
    """Return the position of loaders that are read together; see ``position_of``."""
    positions = [position_of(loader, rank, ranks, processes) for loader in loaders]
    return positions[0] if len(positions) == 1 else _TogetherPosition(positions)


def position_of(loader: DataLoader[Any], rank: int, ranks: int, processes: int) -> LoaderPosition:
    """Return the position of a loader for this rank, and prepare the loader's workers (``WorkerStart``).

    ``rank``, ``ranks``: of those that take different batches; ``processes``: all.
    """
    kind = type(loader).__name__
    if kind == "_FabricDataLoader":  # draws random numbers when its first batch is requested
        raise SpotTrainingError(
            "a loader of fabric.setup_dataloaders cannot be resumed; pass the DataLoader itself, "
            "and use fabric.to_device(batch)"
        )
    if not hasattr(loader, "worker_init_fn"):
        raise SpotTrainingError(
            f"a {kind} has no position that can be saved; use a DataLoader of torch.utils.data"
        )
    batches, is_stream = loader.batch_sampler, isinstance(loader.dataset, IterableDataset)
    randomness = prepare_workers(loader, None if is_stream or not loader.num_workers else _randomness(loader))
    if is_stream:
        return StreamPosition(loader, rank, ranks)
    if isinstance(batches, EpochBatches):
        return _IndexPosition(loader, rank, ranks, randomness)
    if hasattr(loader, "load_state_dict"):
        return _LoaderStatePosition(loader, processes, randomness)
    raise SpotTrainingError(
        "the position of this DataLoader cannot be saved; use batch_sampler=EpochBatches(len(data), "
        "batch_size), a StatefulDataLoader of torchdata, or an IterableDataset"
    )


def _randomness(loader: DataLoader[Any]) -> BatchRandomness | None:
    """Return the random numbers of a map-style loader's workers, seeded as its order is."""
    if isinstance(loader.batch_sampler, EpochBatches):
        return BatchRandomness(loader.batch_sampler.seed)
    if loader.batch_sampler is None:
        return None  # it requests single samples, not lists of them
    return BatchRandomness(0 if loader.generator is None else loader.generator.initial_seed())


def parts_of(
    batch: Any, size: int | None, model: Any, *, samples: int, mine: int, ranks: int
) -> Iterator[tuple[Any, float]]:
    """Yield parts of ``batch`` with their weights; gradients are exchanged in the last one only.

    ``samples``: of the step, of all ranks; ``mine``: of this rank, 0 if the batch repeats one of others. The
    mean over the ranks of the weighted losses' sums is then the mean over ``samples``.
    """
    if size is not None and size < 1:
        raise SpotTrainingError(f"parts must have 1 sample or more, not {size}")
    count, no_sync = max(mine, 1), getattr(model, "no_sync", contextlib.nullcontext)
    size = size or count
    for begin in range(0, count, size):
        end = min(begin + size, count)
        part = batch if (begin, end) == (0, count) else take(batch, begin, end, count)
        with contextlib.nullcontext() if end == count else no_sync():
            yield part, (end - begin) * ranks / samples if mine else 0.0


def take(batch: Any, begin: int, end: int, count: int) -> Any:
    """Return the samples ``begin`` to ``end`` of a collated batch of ``count``."""
    if isinstance(batch, torch.Tensor):
        return batch[begin:end] if batch.ndim and len(batch) == count else batch
    if isinstance(batch, Mapping):
        return type(batch)({key: take(value, begin, end, count) for key, value in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, (list, tuple)):
        if not any(isinstance(value, (torch.Tensor, Mapping, list, tuple)) for value in batch):
            return batch[begin:end] if len(batch) == count else batch  # texts, one per sample
        values = [take(value, begin, end, count) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch
