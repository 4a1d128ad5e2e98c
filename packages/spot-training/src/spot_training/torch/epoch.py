"""The steps of one epoch: its remaining batches, with saves between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from spot_training.storage.manifest import Checkpoint
from spot_training.torch import state
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loaders.workers import sigterm_blocked
from spot_training.torch.loop_state import LoopState
from spot_training.torch.saves import StepSaves, numbered
from spot_training.torch.snapshot import StateCopy


class EpochSteps:
    """Yields batches and moves the position of a ``Loop``'s state behind each step."""

    def __init__(self, now: LoopState, saves: StepSaves, copy: Callable[..., StateCopy]) -> None:
        """``copy`` returns a copy of ``now``, with ``repeat`` of ``LoopState.copy`` as its argument."""
        self._now, self._saves, self._copy = now, saves, copy

    def batches(self, loader: DataLoader[Any], position: LoaderPosition, accumulate: int) -> Iterator[Any]:
        """Yield the remaining batches of the epoch; see ``Loop.batches``."""
        now = self._now
        repeat, now.repeat = now.repeat, None
        saved, per_rank = now.enter(position, is_repeated=repeat is not None)
        if saved is not None and repeat is not None:
            yield from self._repeat(saved, per_rank, repeat, lambda: position.iterate(loader, 1))
            return
        saved = None  # read: its files may go
        position.begin(now.position.epoch, now.position.samples)
        is_at_start = position.starts_epochs and not now.position.batch
        if "randomness" in per_rank and is_at_start:
            state.set_randomness(per_rank["randomness"])  # before iter(), which draws a number for the epoch
        with sigterm_blocked():
            batches = position.iterate(loader, accumulate)
        if "randomness" in per_rank and not is_at_start:
            state.set_randomness(per_rank["randomness"])  # after iter(), which draws a number
        yield from self._train(batches, position, accumulate)

    def _train(self, batches: Iterator[Any], position: LoaderPosition, accumulate: int) -> Iterator[Any]:
        current, before = self._now.position, None
        remaining = position.remaining(current.batch, current.samples)
        self._saves.begin_epoch(numbered(remaining, accumulate))
        self._saves.begin_step()
        while True:
            if (
                not current.batch % accumulate
                and position.remaining(current.batch, current.samples) == accumulate
            ):
                before = {"batch": current.batch, "samples": current.samples}, position.state()
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch
            current.step, current.batch = current.step + 1, current.batch + 1
            current.samples = position.after(current.samples)
            if not current.batch % accumulate:
                remaining = position.remaining(current.batch, current.samples)
                repeat = before if remaining == 0 else None
                is_long = repeat is not None and (self._saves.holds_copies or not position.starts_epochs)
                self._saves.between_steps(
                    current.step,
                    partial(self._copy, repeat),
                    is_long=is_long,
                    remaining=numbered(remaining, accumulate),
                )

    def _repeat(
        self,
        saved: Checkpoint,
        per_rank: Mapping[str, Any],
        repeat: Mapping[str, int],
        begin: Callable[[], Iterator[Any]],
    ) -> Iterator[Any]:
        """Yield the epoch's last batches again; then restore the state after them."""
        now = self._now
        with now.repeating(saved, per_rank, repeat):
            with sigterm_blocked():
                batches = begin()
            for batch in batches:
                yield batch
                now.position.step, now.position.batch = now.position.step + 1, now.position.batch + 1
        if "randomness" in per_rank:
            state.set_randomness(per_rank["randomness"])
        self._saves.hold(None)  # it is saved
