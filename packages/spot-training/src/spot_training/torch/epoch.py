"""The steps of one epoch: its remaining batches, with saves between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from spot_training.errors import SpotTrainingError
from spot_training.torch.audit.audit import Audit
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loaders.workers import sigterm_blocked
from spot_training.torch.loop_state import LoopState
from spot_training.torch.saves import StateCopy, StepSaves, numbered


@dataclass(frozen=True)
class BatchSource:
    """Where an epoch's batches come from; see ``Loop.batches``."""

    position: LoaderPosition
    accumulate: int
    through: Callable[[Iterator[Any]], Iterable[Any]]

    def batches(self, accumulate: int) -> Iterator[Any]:
        """Return an iterator over the rest of the epoch, which is read from here on."""
        return iter(self.through(self.position.iterate(accumulate)))

    def following(self, epoch: int, samples: int) -> list[int] | None:
        """Return the indices of the next batch; None: not known, or not drawn by this process alone."""
        return self.position.following(epoch, samples) if self.through is iter else None


class EpochSteps:
    """Yields batches and moves the position of a ``Loop``'s state behind each step."""

    def __init__(
        self, now: LoopState, saves: StepSaves, copy: Callable[..., StateCopy], audit: Audit | None
    ) -> None:
        """``copy`` returns a copy of ``now``, with ``repeat`` of ``LoopState.copy`` as its argument."""
        self._now, self._saves, self._copy, self._audit = now, saves, copy, audit
        self._is_open, self._done_epoch = False, -1

    @property
    def is_done(self) -> bool:
        """Whether this epoch's batches have been read: more are of a loader without a position."""
        return self._done_epoch == self._now.position.epoch

    def batches(self, source: BatchSource) -> Iterator[Any]:
        """Yield the remaining batches of the epoch."""
        now = self._now
        if self._is_open:
            raise SpotTrainingError(
                "a second loop.batches() was called in an epoch while one is open; use "
                "loop.batches(a, b), which yields a batch of each in a step"
            )
        if self.is_done:  # another pass after the training's: it has no position
            source.position.begin(now.position.epoch, 0)
            yield from source.batches(source.accumulate)
            return
        self._is_open = True
        try:
            yield from self._epoch(source)
        finally:
            self._is_open, self._done_epoch = False, now.position.epoch

    def _epoch(self, source: BatchSource) -> Iterator[Any]:
        now, position, loader = self._now, source.position, source.position.loader
        if self._audit is not None:
            now.module_digests |= self._audit.begin(loader, now.module_digests)
        now.dataset = None if loader.num_workers else loader.dataset
        repeat, now.repeat = now.repeat, None
        saved, per_rank = now.enter(position, is_repeated=repeat is not None)
        if saved is not None and repeat is not None:
            with now.repeating(saved, per_rank, repeat):
                with sigterm_blocked():
                    batches = source.batches(1)
                for batch in batches:
                    yield batch
                    now.position.step, now.position.batch = now.position.step + 1, now.position.batch + 1
            now.set_randomness(per_rank)
            self._saves.hold(None)  # it is saved
            return
        saved = None  # read: its files may go
        position.begin(now.position.epoch, now.position.samples)
        is_at_start = position.starts_epochs and not now.position.batch
        if is_at_start:
            now.set_randomness(per_rank)  # before iter(), which draws a number for the epoch
        with sigterm_blocked():
            batches = position.iterate(source.accumulate)
        if not is_at_start:
            now.set_randomness(per_rank)  # after iter(), which draws a number
        yield from self._train(iter(source.through(batches)), source)

    def _train(self, batches: Iterator[Any], source: BatchSource) -> Iterator[Any]:
        current, before = self._now.position, None
        position, accumulate = source.position, source.accumulate
        remaining = position.remaining(current.batch, current.samples)
        self._saves.begin_epoch(numbered(remaining, accumulate))
        self._saves.begin_step()
        while True:
            is_complete = not current.batch % accumulate
            if is_complete and position.remaining(current.batch, current.samples) == accumulate:
                before = {"batch": current.batch, "samples": current.samples}, position.state()
            try:
                batch = next(batches)
            except StopIteration:
                return
            if self._audit is not None:
                self._audit.check(batch)
            yield batch
            current.step, current.batch = current.step + 1, current.batch + 1
            current.samples = position.after(current.samples)
            if not current.batch % accumulate:
                remaining = position.remaining(current.batch, current.samples)
                repeat = before if remaining == 0 else None
                is_long = repeat is not None and (self._saves.holds_copies or not position.starts_epochs)
                numbers, copy = numbered(remaining, accumulate), partial(self._copy, repeat)
                self._saves.between_steps(current.step, copy, is_long=is_long, remaining=numbers)
                if remaining != 0 and (stored := self._saves.take_first()) is not None:
                    if self._audit is not None:
                        following = source.following(current.epoch, current.samples)
                        self._audit.after_save(stored, position.loader, following)
                    stored = None  # its file stays mapped no longer
