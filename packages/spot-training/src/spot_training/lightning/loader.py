"""The train loader: the order of an epoch's samples, and the moment between two steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from copy import copy
from itertools import islice
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, IterableDataset

from spot_training.storage.manifest import Checkpoint
from spot_training.torch import EpochBatches, state
from spot_training.torch.loaders.workers import BatchRandomness, prepare_workers, sigterm_blocked
from spot_training.torch.streams.position import StreamPosition

_SEEDED: Final = "torch.utils.data."
"""The package of the samplers that draw from PyTorch's generators only."""


class EpochOrder:
    """A sampler whose order depends on seed and epoch only; it can begin in the middle of an epoch."""

    def __init__(self, sampler: Any, randomness: BatchRandomness, generators: list[Any]) -> None:
        """``sampler``: the loader's batch sampler, or its sampler if it makes no batches."""
        self._sampler, self._randomness, self._generators = sampler, randomness, generators
        self._order: list[Any] = []
        self._begin, self.digest = 0, ""
        """A hash of the whole epoch's order."""

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        yield from self._order[self._begin :]

    def start(self, epoch: int, begin: int) -> None:
        """Draw the order of an epoch; iterations start after ``begin`` batches."""
        self._order, self._begin = self.draw(epoch), begin
        self.digest = hashlib.sha256(repr(self._order).encode()).hexdigest()[:16]

    def draw(self, epoch: int) -> list[Any]:
        """Return an epoch's batches; the random number state of the process is not changed."""
        before = state.randomness()
        try:
            self._randomness.epoch[0] = epoch
            self._randomness.set(-1)
            for generator in self._generators:
                generator.manual_seed(torch.initial_seed())
            for sampler in (self._sampler, getattr(self._sampler, "sampler", None)):
                if sampler is not None and hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)
            if isinstance(self._sampler, EpochBatches):
                self._sampler.begin(epoch, 0)
            return list(islice(self._sampler, len(self._sampler)))
        finally:
            state.set_randomness(before)


class ResumableLoader:
    """A train loader that calls ``between_steps`` when the Trainer requests a batch.

    Then all of the step before is done: the optimizer, validations, schedulers, logs. ``position`` returns
    epoch and batch of the next iteration.
    """

    def __init__(
        self,
        loader: Any,
        seed: int,
        ranks: Any,
        position: Callable[[], tuple[int, int]],
        between_steps: Callable[[], None],
        *,
        accumulate: int,
    ) -> None:
        """``accumulate``: batches of an optimizer step."""
        self._position, self._between_steps, self._accumulate = position, between_steps, accumulate
        self._randomness = BatchRandomness(seed)
        self.stream: StreamPosition | None = None
        """The position of a loader over an ``IterableDataset``."""
        self.order: Any = None
        """``EpochOrder``; None if the loader has a state of its own, or a ``problem``."""
        self.problem = ""
        """Why the position in an epoch cannot be resumed; empty if it can."""
        self._loader = copy(loader) if isinstance(loader, DataLoader) else loader
        self._is_stateful = hasattr(loader, "load_state_dict")
        if isinstance(loader, DataLoader):
            is_stream = isinstance(loader.dataset, IterableDataset)
            prepare_workers(self._loader, None if is_stream else self._randomness)
            if is_stream:
                self.stream = StreamPosition(self._loader, ranks.rank, ranks.size, seed)
            elif not self._is_stateful:
                self._set_order(self._loader)
        elif not self._is_stateful:
            self.problem = f"a {type(loader).__name__} has no position"

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name in ("_loader", "state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def state(self, done: int) -> Any:
        """Return the state of a ``StatefulDataLoader``, or a stream's after ``done`` batches of the epoch."""
        if self.stream is not None:
            return self.stream.state(self._ahead(done))
        return self._loader.state_dict() if self._is_stateful else None

    def load(self, checkpoint: Checkpoint, saved: Any) -> None:
        """Load that state before the next iteration; raises ``MismatchError`` if it is of other data."""
        if self.stream is not None:
            self.stream.restore(checkpoint, saved)
        elif self._is_stateful and saved is not None:
            self._loader.load_state_dict(saved)

    def remaining(self, done: int) -> int | None:
        """Return the batches of a stream's epoch after ``done``; None if there are many, or it is none."""
        more = None if self.stream is None else self.stream.remaining(0, 0)
        return None if more is None else more + self._ahead(done)

    def _ahead(self, done: int) -> int:
        """Return how many batches the Trainer has requested and not trained on: one without a length."""
        return 0 if self.stream is None else max(0, self.stream.batches - done)

    def __iter__(self) -> Iterator[Any]:
        epoch, begin = self._position()
        if self.order is not None:
            self.order.start(epoch, begin)
        if self.stream is not None:
            self.stream.begin(epoch, 0)
        with sigterm_blocked():
            stream = self.stream
            batches = iter(self._loader) if stream is None else stream.iterate(self._accumulate)
        while True:
            self._between_steps()
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch

    def _set_order(self, loader: Any) -> None:
        """Give the copy of a map-style loader a resumable order."""
        kind = "batch_sampler" if loader.batch_sampler is not None else "sampler"
        sampler = getattr(loader, kind)
        if not hasattr(sampler, "__len__"):
            self.problem = f"{type(sampler).__name__} has no length"
            return
        inner = getattr(sampler, "sampler", None)
        generators = (getattr(owner, "generator", None) for owner in (loader, sampler, inner))
        order = EpochOrder(
            sampler, self._randomness, [entry for entry in generators if isinstance(entry, torch.Generator)]
        )
        is_seeded = all(
            part is None or isinstance(part, EpochBatches) or type(part).__module__.startswith(_SEEDED)
            for part in (sampler, inner)
        )
        if not is_seeded and order.draw(0) != order.draw(0):
            self.problem = f"{type(inner or sampler).__name__} draws another order each time"
            return
        # DataLoader refuses an assignment after its construction, but reads the attribute at each iteration.
        object.__setattr__(loader, kind, order)
        self.order = order
