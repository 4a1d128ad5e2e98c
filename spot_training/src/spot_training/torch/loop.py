"""A training loop that can be interrupted after any step and resumed on another instance."""

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

from spot_training.checkpointer import Checkpoint
from spot_training.errors import MismatchError, SpotTrainingError, one_line
from spot_training.interval import Interval
from spot_training.spot import Spot
from spot_training.torch import state
from spot_training.torch.data import LoaderPosition, position_of
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.saver import BackgroundSaver

_PARTS_FILE: Final = "parts.pt"
"""The state of the parts: the same at every rank, written by rank 0."""
_PER_RANK_FILE: Final = "own.pt"
"""The state of each rank: random numbers and a stateful loader. The file name is a stored format."""
_log = logging.getLogger("spot_training")


@dataclass
class LoopPosition:
    """The position between two steps: total batches, the epoch, its batches and samples.

    Stored in the manifest: ``meta["place"]``.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    samples: int = 0
    """Samples of all ranks together; 0 if the loader has its own state."""


class Loop:
    """Makes a training loop fault-tolerant: resumes when created, saves when due, exits after a notice.

    Example::

        loop = Loop(model=model, optimizer=optimizer, scheduler=scheduler)
        for epoch in loop.epochs(10):
            for batch in loop.batches(loader):
                ...  # forward, backward, optimizer.step(), scheduler.step()

    ``parts`` are all objects with state, by name, each with ``state_dict`` and ``load_state_dict``. It also
    saves the random number state of Python, NumPy, PyTorch and this process's GPU, and the loader's position.
    It saves between two steps, when the loop requests its next batch; after a notice it saves and raises
    ``SystemExit(0)`` there. With several ranks each of them creates it, after DDP has wrapped the model.
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
        """``folder``: ``location`` of ``Checkpointer``; ``keep``: see there.

        ``asynchronous``: training continues while a copy of the state is written.
        ``ranks``: default: the processes of ``torch.distributed``.
        """
        if not parts:
            raise SpotTrainingError("Loop() has nothing to save; pass model=..., optimizer=...")
        self._parts = {name: state.unwrap(part) for name, part in parts.items()}
        self._ranks: TorchRanks = ranks or TorchRanks()
        self._asynchronous = asynchronous
        self._saver = BackgroundSaver()
        self._position = LoopPosition()
        self._loader_position: LoaderPosition | None = None
        self._saved: Checkpoint | None = None
        self._per_rank_state: dict[str, Any] = {}
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
        """Total batches of the training, including earlier processes."""
        return self._position.step

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the remaining epochs, counted from 0, starting with the interrupted one."""
        self._epochs = count
        while self._position.epoch < count:
            yield self._position.epoch
            self._position = LoopPosition(step=self._position.step, epoch=self._position.epoch + 1)
        self._save(last=True)
        self._spot.finish(self._position.step)

    def batches(self, loader: DataLoader[Any], *, accumulate: int = 1) -> Iterator[Any]:
        """Yield the remaining batches of this epoch.

        ``loader`` has ``EpochBatches`` as its ``batch_sampler``, or is a ``StatefulDataLoader`` of torchdata.
        Gradients are not saved: with ``accumulate`` batches per optimizer step it stops only after complete
        optimizer steps.
        """
        position = self._loader_position = position_of(loader, self._ranks.rank, self._ranks.size)
        if self._saved is not None:
            position.restore(self._saved, self._per_rank_state.get("loader"))
        if self._epochs is not None and (steps := position.steps) is not None:
            self._spot.steps = self._epochs * steps
        position.begin(self._position.epoch, self._position.samples)
        batches = iter(loader)
        if "randomness" in self._per_rank_state:
            state.set_randomness(self._per_rank_state["randomness"])  # after iter(), which draws a number
        self._saved, self._per_rank_state = None, {}
        for batch in batches:
            yield batch
            current = self._position
            current.step, current.batch = current.step + 1, current.batch + 1
            current.samples = position.after(current.samples)
            if current.batch % accumulate == 0:
                self._between_steps()

    def _between_steps(self) -> None:
        """Save if due, exit after a notice; all ranks do the same at the same step."""
        self._saver.check()
        self._spot.progress.report(self._position.step, self._spot.steps)
        is_first = self._ranks.rank == 0
        is_save_due = is_first and not self._saver.busy and self._spot.should_save()
        is_stopping, is_save_due = self._ranks.any(self._spot.should_stop(), is_save_due)
        if is_stopping:
            self._save(last=True)
            _log.warning("saved at step %d; stopping for the interruption", self._position.step)
            raise SystemExit(0)
        if is_save_due:
            self._save(last=False)

    def _save(self, *, last: bool) -> None:
        started = time.monotonic()
        self._saver.wait()
        position_fields, files = asdict(self._position), {}
        if self._ranks.rank == 0:
            files[_PARTS_FILE] = state.copy_to_cpu(
                {name: part.state_dict() for name, part in self._parts.items()}
            )
        files[_PER_RANK_FILE] = state.copy_to_cpu(self._collect_per_rank_state())
        meta = {
            "place": position_fields,
            **(self._loader_position.identity() if self._loader_position is not None else {}),
        }

        def write(folder: Path) -> None:
            for name, content in files.items():
                state.write(folder / name, content)

        in_background = self._asynchronous and not last
        copy_seconds = time.monotonic() - started
        save = partial(
            self._spot.save,
            position_fields["step"],
            write,
            meta,
            last=last,
            paused_seconds=lambda: copy_seconds if in_background else time.monotonic() - started,
        )
        if in_background:
            self._saver.start(save)
        else:
            save()

    def _collect_per_rank_state(self) -> dict[str, Any]:
        if self._loader_position is None:  # resumed and already at the end
            return self._per_rank_state
        return {"randomness": state.randomness(), "loader": self._loader_position.state()}

    def _restore(self) -> None:
        saved = self._spot.restore()
        if saved is not None:
            parts = state.read(saved.part(0) / _PARTS_FILE)
            for name, part in self._parts.items():
                try:
                    part.load_state_dict(parts[name])
                except (KeyError, ValueError, RuntimeError, TypeError) as error:
                    raise MismatchError(
                        f"{saved.path}: {name} cannot be loaded: {one_line(error)}"
                    ) from error
            if self._ranks.rank < saved.world_size:
                self._per_rank_state = state.read(saved.part(self._ranks.rank) / _PER_RANK_FILE)
            else:
                _log.warning(
                    "rank %d is new: its random number state is that of the script", self._ranks.rank
                )
            self._position = LoopPosition(**saved.meta["place"])
            self._saved = saved
        self._ranks.level(self._parts)
