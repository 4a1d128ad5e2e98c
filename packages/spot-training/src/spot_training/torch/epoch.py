"""The steps of one epoch: its remaining batches, with saves between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from spot_training.errors import SpotTrainingError
from spot_training.storage.manifest import Checkpoint
from spot_training.torch.audit.first_save import Audit
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loaders.workers import sigterm_blocked
from spot_training.torch.loop_state import LoopState
from spot_training.torch.saves import StepSaves, numbered
from spot_training.torch.snapshot import StateCopy


class EpochSteps:
    """Yields batches and moves the position of a ``Loop``'s state behind each step."""

    def __init__(
        self, now: LoopState, saves: StepSaves, copy: Callable[..., StateCopy], audit: Audit
    ) -> None:
        """``copy`` returns a copy of ``now``, with ``repeat`` of ``LoopState.copy`` as its argument."""
        self._now, self._saves, self._copy = now, saves, copy
        self._audit = audit
        self._is_open = False
        self._done_epoch = -1

    @property
    def is_done(self) -> bool:
        """Whether this epoch's batches have been read: more are of a loader without a position."""
        return self._done_epoch == self._now.position.epoch

    def batches(
        self,
        loader: DataLoader[Any],
        position: LoaderPosition,
        accumulate: int,
        through: Callable[[Iterator[Any]], Iterable[Any]],
    ) -> Iterator[Any]:
        """Yield the remaining batches of the epoch; see ``Loop.batches``."""
        now = self._now
        if self._is_open:
            raise SpotTrainingError(
                "a second loop.batches() was called in an epoch while one is open; use "
                "loop.batches(a, b), which yields a batch of each in a step"
            )
        if self.is_done:  # another pass after the training's: it has no position
            position.begin(now.position.epoch, 0)
            yield from through(position.iterate(loader, accumulate))
            return
        self._is_open = True
        try:
            yield from self._epoch(loader, position, accumulate, through)
        finally:
            self._is_open, self._done_epoch = False, now.position.epoch

    def _epoch(
        self,
        loader: DataLoader[Any],
        position: LoaderPosition,
        accumulate: int,
        through: Callable[[Iterator[Any]], Iterable[Any]],
    ) -> Iterator[Any]:
        now = self._now
        self._audit.begin([loader])
        now.dataset = None if loader.num_workers else loader.dataset
        repeat, now.repeat = now.repeat, None
        saved, per_rank = now.enter(position, is_repeated=repeat is not None)
        if saved is not None and repeat is not None:
            yield from self._repeat(
                saved, per_rank, repeat, lambda: iter(through(position.iterate(loader, 1)))
            )
            return
        saved = None  # read: its files may go
        position.begin(now.position.epoch, now.position.samples)
        is_at_start = position.starts_epochs and not now.position.batch
        if is_at_start:
            now.set_randomness(per_rank)  # before iter(), which draws a number for the epoch
        with sigterm_blocked():
            batches = position.iterate(loader, accumulate)
        if not is_at_start:
            now.set_randomness(per_rank)  # after iter(), which draws a number
        batches = iter(through(batches))
        following = getattr(position, "following", None) if through is iter else None
        yield from self._train(batches, position, accumulate, loader, following)

    def _train(
        self,
        batches: Iterator[Any],
        position: LoaderPosition,
        accumulate: int,
        loader: DataLoader[Any],
        following: Callable[[int, int], list[int] | None] | None,
    ) -> Iterator[Any]:
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
            self._audit.check(batch)
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
                if remaining != 0:
                    self._audit_first_save(loader, following)

    def _audit_first_save(
        self, loader: DataLoader[Any], following: Callable[[int, int], list[int] | None] | None
    ) -> None:
        """Audit a save, once; its file stays mapped no longer than this call."""
        if (stored := self._saves.take_first()) is not None:
            now = self._now.position
            self._audit.after_save(stored, loader, following(now.epoch, now.samples) if following else None)

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
        now.set_randomness(per_rank)
        self._saves.hold(None)  # it is saved
