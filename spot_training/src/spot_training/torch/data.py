"""Which samples a step takes, and how a loader goes on in the middle of an epoch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader

from spot_training.checkpointer import Saved
from spot_training.errors import MismatchError, SpotTrainingError


class EpochBatches:
    """A batch sampler that can go on in the middle of an epoch: ``DataLoader(data, batch_sampler=...)``.

    The order follows from seed and epoch. ``batch_size`` is of one rank; the position counts samples of all
    ranks together, so that an epoch begun by two ranks is finished by one and each sample is still seen once.
    The epoch's last step is shared equally, and what cannot be shared (fewer samples than ranks) is left out
    of that epoch; one rank leaves out nothing.
    """

    def __init__(self, length: int, batch_size: int, *, seed: int = 0, shuffle: bool = True) -> None:
        if length < 1 or batch_size < 1:
            raise SpotTrainingError(f"EpochBatches({length}, {batch_size}): allowed: 1 or more of both")
        self.length, self.batch_size, self.seed, self.shuffle = length, batch_size, seed, shuffle
        self.rank, self.ranks = 0, 1
        self._epoch = self._begin = 0

    def share(self, rank: int, ranks: int) -> None:
        """Take the part of one rank of so many; ``Loop`` says which."""
        if self.length < ranks:
            raise SpotTrainingError(f"{self.length} samples cannot be shared by {ranks} ranks")
        self.rank, self.ranks = rank, ranks

    def begin(self, epoch: int, samples: int) -> None:
        """Let the next iteration begin in an epoch, after so many samples of all ranks."""
        self._epoch, self._begin = epoch, samples

    def after(self, samples: int) -> int:
        """Return the position one step after a position."""
        return min(samples + self.batch_size * self.ranks, self.length)

    def __len__(self) -> int:
        """Return the steps of a whole epoch."""
        whole, rest = divmod(self.length, self.batch_size * self.ranks)
        return whole + (rest >= self.ranks)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's indices, a list for each step that is left of the epoch."""
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
    """Where a loader stands."""

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, if known."""

    def restore(self, saved: Saved, own: Any) -> None:
        """Take over a checkpoint's position, or refuse it: ``MismatchError``."""

    def begin(self, epoch: int, samples: int) -> None:
        """Let the next iteration begin there."""

    def after(self, samples: int) -> int:
        """Return the samples taken after one more step."""

    def identity(self) -> dict[str, Any]:
        """Return what must be the same for a position to mean the same samples: JSON."""

    def state(self) -> Any:
        """Return what this rank must keep of it."""


class _Numbered:
    """A loader over ``EpochBatches``: its position is a number."""

    def __init__(self, batches: EpochBatches, rank: int, ranks: int) -> None:
        batches.share(rank, ranks)
        self._batches = batches
        self.begin, self.after = batches.begin, batches.after

    @property
    def steps(self) -> int | None:
        return len(self._batches)

    def restore(self, saved: Saved, own: Any) -> None:
        _refuse_other(saved, self.identity())

    def identity(self) -> dict[str, Any]:
        one = self._batches
        return {"data": {"length": one.length, "seed": one.seed, "shuffle": one.shuffle}}

    def state(self) -> Any:
        return None


class _Stateful:
    """A loader that keeps its own position, each rank's by itself: torchdata's ``StatefulDataLoader``."""

    def __init__(self, loader: Any, ranks: int) -> None:
        self._loader, self._ranks = loader, ranks

    @property
    def steps(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:  # of an iterable without a length
            return None

    def restore(self, saved: Saved, own: Any) -> None:
        _refuse_other(saved, self.identity())
        if saved.world_size != self._ranks:
            raise MismatchError(
                f"{saved.path} was saved by {saved.world_size} ranks, these are {self._ranks}, and a loader's"
                " own position cannot be shared out; allowed: as many ranks, or EpochBatches"
            )
        self._loader.load_state_dict(own)

    def begin(self, epoch: int, samples: int) -> None:
        """Nothing: it goes on where it is."""

    def after(self, samples: int) -> int:
        return 0

    def identity(self) -> dict[str, Any]:
        return {"data": "stateful"}

    def state(self) -> Any:
        return self._loader.state_dict()


def position_of(loader: DataLoader[Any], rank: int, ranks: int) -> LoaderPosition:
    """Return the position of a loader, for this rank; its workers end at its own SIGTERM only."""
    if loader.num_workers and not isinstance(loader.worker_init_fn, HearsParentOnly):
        loader.worker_init_fn = HearsParentOnly(loader.worker_init_fn)
    if isinstance(loader.batch_sampler, EpochBatches):
        return _Numbered(loader.batch_sampler, rank, ranks)
    if hasattr(loader, "load_state_dict"):
        return _Stateful(loader, ranks)
    raise SpotTrainingError(
        "the position of this DataLoader cannot be kept; allowed: "
        "batch_sampler=EpochBatches(len(data), batch_size), or a StatefulDataLoader of torchdata"
    )


class HearsParentOnly:
    """A ``worker_init_fn`` after which a loader's worker ends at its parent's SIGTERM and at no other.

    torchrun sends it to a rank's whole process group, and a step that needs its next batch would fail. To
    ignore it altogether would hang the parent's end, at which Python terminates and joins what is left.
    """

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Do so in a worker."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if self._then is not None:
            self._then(worker)


def _end_with_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def _refuse_other(saved: Saved, now: dict[str, Any]) -> None:
    if saved.meta.get("data") not in (None, now["data"]):
        raise MismatchError(
            f"{saved.path} was saved in other data: {saved.meta.get('data')}, now: {now['data']}"
        )
