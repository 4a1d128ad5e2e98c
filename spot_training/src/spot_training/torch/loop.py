"""A training loop that can be ended after any step and goes on at the next one, elsewhere."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch.utils.data import DataLoader

from spot_training.checkpointer import Saved
from spot_training.errors import MismatchError, SpotTrainingError, one_line
from spot_training.interval import Interval
from spot_training.spot import Spot
from spot_training.torch import state
from spot_training.torch.data import LoaderPosition, position_of
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.saver import Saver

_PARTS: Final = "parts.pt"
"""The state of the parts: the same at every rank, written by rank 0."""
_OWN: Final = "own.pt"
"""What each rank has of its own: random numbers and the state of a stateful loader."""
_log = logging.getLogger("spot_training")


@dataclass
class Place:
    """Where a training stands between two steps: batches in all, the epoch, batches and samples of it."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    samples: int = 0
    """By all ranks together; 0 where the loader keeps its position itself."""


class Loop:
    """What makes a loop survive: it resumes when created, saves when due, and ends the process when told.

    Example::

        loop = Loop(model=model, optimizer=optimizer, scheduler=scheduler)
        for epoch in loop.epochs(10):
            for batch in loop.batches(loader):
                ...  # forward, backward, optimizer.step(), scheduler.step()

    ``parts`` are everything whose state matters, by name, each with ``state_dict`` and ``load_state_dict``.
    With them it saves the random numbers of Python, NumPy, PyTorch and this process's GPU, and the loader's
    position. It saves between two steps, that is when the loop asks for its next batch; when told to stop it
    saves and raises ``SystemExit(0)`` there. With several ranks all of them create it, after DDP has wrapped
    the model.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        keep: int = 3,
        asynchronous: bool = True,
        interval: Interval | None = None,
        ranks: Any = None,
        **parts: state.Stateful,
    ) -> None:
        """``folder``, ``keep``: see ``Checkpointer``.

        ``asynchronous``: training goes on while a copy of the state is written.
        ``ranks``: who trains together, by default the processes of ``torch.distributed``.
        """
        if not parts:
            raise SpotTrainingError("Loop() has nothing to save: give it model=..., optimizer=...")
        self._parts = {name: state.bare(part) for name, part in parts.items()}
        self._ranks: TorchRanks = ranks or TorchRanks()
        self._asynchronous = asynchronous
        self._saver = Saver()
        self._place = Place()
        self._position: LoaderPosition | None = None
        self._saved: Saved | None = None
        self._own: dict[str, Any] = {}
        self._epochs: int | None = None
        self._spot = Spot(
            folder,
            interval=interval,
            keep=keep,
            ranks=self._ranks,
            fingerprint=state.fingerprint(self._parts),
            reshard=True,
        )
        self._restore()

    @property
    def step(self) -> int:
        """Batches taken in all, before this process and in it."""
        return self._place.step

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs that are left, counted from 0; the one that was interrupted comes first."""
        self._epochs = count
        while self._place.epoch < count:
            yield self._place.epoch
            self._place = Place(step=self._place.step, epoch=self._place.epoch + 1)
        self._save(last=True)
        self._spot.finish(self._place.step)

    def batches(self, loader: DataLoader[Any], *, accumulate: int = 1) -> Iterator[Any]:
        """Yield the batches that are left of this epoch.

        ``loader`` has ``EpochBatches`` as its ``batch_sampler``, or is a ``StatefulDataLoader`` of torchdata.
        Gradients are not saved: with ``accumulate`` batches to an optimizer step it stops after whole ones
        only.
        """
        position = self._position = position_of(loader, self._ranks.rank, self._ranks.size)
        if self._saved is not None:
            position.restore(self._saved, self._own.get("loader"))
        if self._epochs is not None and (steps := position.steps) is not None:
            self._spot.steps = self._epochs * steps
        position.begin(self._place.epoch, self._place.samples)
        batches = iter(loader)
        if "randomness" in self._own:
            state.set_randomness(self._own["randomness"])  # after iter(), which draws a number
        self._saved, self._own = None, {}
        for batch in batches:
            yield batch
            place = self._place
            place.step, place.batch = place.step + 1, place.batch + 1
            place.samples = position.after(place.samples)
            if place.batch % accumulate == 0:
                self._between_steps()

    def _between_steps(self) -> None:
        """Save if it is time, end if we were told: all ranks do the same at the same step."""
        self._saver.check()
        self._spot.progress.tell(self._place.step, self._spot.steps)
        is_first = self._ranks.rank == 0
        due = is_first and not self._saver.busy and self._spot.should_save()
        told, due = self._ranks.any(self._spot.should_stop(), due)
        if told:
            self._save(last=True)
            _log.warning("saved at step %d; it goes on elsewhere", self._place.step)
            raise SystemExit(0)
        if due:
            self._save(last=False)

    def _save(self, *, last: bool) -> None:
        begun = time.monotonic()
        self._saver.wait()
        place, files = asdict(self._place), {}
        if self._ranks.rank == 0:
            files[_PARTS] = state.staged({name: part.state_dict() for name, part in self._parts.items()})
        files[_OWN] = state.staged(self._what_is_own())
        meta = {"place": place, **(self._position.identity() if self._position is not None else {})}

        def write(folder: Path) -> None:
            for name, content in files.items():
                state.write(folder / name, content)

        beside = self._asynchronous and not last
        stood = time.monotonic() - begun
        save = partial(
            self._spot.save,
            place["step"],
            write,
            meta,
            last=last,
            stood=lambda: stood if beside else time.monotonic() - begun,
        )
        if beside:
            self._saver.start(save)
        else:
            save()

    def _what_is_own(self) -> dict[str, Any]:
        if self._position is None:  # resumed and already at the end
            return self._own
        return {"randomness": state.randomness(), "loader": self._position.state()}

    def _restore(self) -> None:
        saved = self._spot.restore()
        if saved is not None:
            parts = state.read(saved.part(0) / _PARTS)
            for name, part in self._parts.items():
                try:
                    part.load_state_dict(parts[name])
                except (KeyError, ValueError, RuntimeError, TypeError) as error:
                    raise MismatchError(
                        f"{saved.path}: {name} cannot be loaded: {one_line(error)}"
                    ) from error
            if self._ranks.rank < saved.world_size:
                self._own = state.read(saved.part(self._ranks.rank) / _OWN)
            else:
                _log.warning(
                    "rank %d is new: its random numbers begin as the script set them", self._ranks.rank
                )
            self._place = Place(**saved.meta["place"])
            self._saved = saved
        self._ranks.level(self._parts)
