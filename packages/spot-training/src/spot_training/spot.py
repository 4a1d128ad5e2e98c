"""Checkpoints, notice, interval and progress for a training loop; the adapters use it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spot_training import randomness, rehearsal
from spot_training.checkpointer import Checkpointer, Write
from spot_training.errors import InUseError, SaveError, SpotTrainingError, log
from spot_training.identity import TrainingRun
from spot_training.interval import Interval
from spot_training.levels.levels import RETRY_SECONDS, CheckpointLevels
from spot_training.notice import Notice
from spot_training.progress import Progress
from spot_training.storage.manifest import Checkpoint
from spot_training.storage.retention import Keep, merge

_ended: set[str] = set()
"""Where trainings of this process have ended."""


class Spot:
    """A training that can be interrupted at any step.

    It combines `Checkpointer`, `Notice`, `Interval` and `Progress`. A failed periodic save is logged and
    retried within a minute; one at a notice raises; one at the end (`ending`, `finish`) is logged, so that
    the script can still export its model.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        steps: int | None = None,
        checkpointer: Checkpointer | None = None,
        notice: Notice | None = None,
        interval: Interval | None = None,
        progress: Progress | None = None,
        run: TrainingRun | None = None,
        local: str | os.PathLike[str] | None = None,
        has_randomness: bool = True,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        """``location``, ``options``: see ``Checkpointer``.

        ``steps``: the total number of steps, if known. ``run``: default: of this process's command.
        ``local``: a directory of this machine, such as ``/dev/shm``: saves by the interval go there, and at
        longer intervals and at a notice to ``location``; default ``$GPU_SPOT_LOCAL_CHECKPOINTS``, "": none.
        ``has_randomness``: a save includes the random number state of Python, NumPy and PyTorch, and
        ``restore`` sets it.
        """
        self.notice = notice or Notice()
        self.checkpointer = checkpointer or Checkpointer(
            location, run=run or TrainingRun.of_process(), **options
        )
        self.interval = interval or Interval()
        self.progress = progress or Progress()
        self.steps = steps
        self._has_randomness, self._clock = has_randomness, clock
        self._is_rehearsed = rehearsal.current() is not None
        self._levels = CheckpointLevels(
            self.checkpointer,
            self.interval,
            "" if self._is_rehearsed else local,
            clock=clock,
            seconds_left=lambda: self.notice.seconds_left,
        )
        self._next_save_at = clock() + self._levels.seconds
        self._failed: SaveError | None = None
        self._step: int | None = None
        self._keep: Keep | None = None
        self._best_requested: Keep | None = None
        self.progress.is_interrupted = lambda: self.notice.received

    @property
    def last_step(self) -> int | None:
        """The step that this process last saved or restored, on this machine or in ``location``."""
        return self._levels.last_step

    def restore(self) -> Checkpoint | None:
        """See ``Checkpointer.restore``; also starts the interval and reports the step to the agent."""
        if self.checkpointer.location in _ended:
            raise InUseError(
                f"{self.checkpointer.location} has the checkpoints of a training that ended in this "
                "process; give each training a name, such as name='fold-1'"
            )
        try:
            saved = self._levels.restore()
        except SpotTrainingError as error:
            self.progress.failed(error)
            raise
        self._keep = self._best_requested = None
        self.progress.report(saved.step if saved else 0, self.steps, now=True)
        self._next_save_at = self._clock() + self._levels.seconds
        if saved is not None and self._has_randomness:
            randomness.restore(saved.part(self.checkpointer.ranks.rank))
        return saved

    def should_stop(self) -> bool:
        """Return whether a notice was received: save and stop now."""
        return self.notice.received

    def should_save(self) -> bool:
        """Return whether a save is due: by the interval, by ``keep``, or because a notice was received."""
        is_due = self._clock() >= self._next_save_at or self._is_rehearsed
        return self.keeps or is_due or self.notice.received

    def keep(self, *, metric: Any = None, mode: str = "min", pin: str | None = None) -> bool:
        """Let the present state stay beside the newest checkpoints; the next `after` or `save` writes it.

        It stays if its metric is the best so far (returned), or under a name. ``metric``: NaN and infinity
        never are the best, and of two equal ones the earlier is. ``mode``: ``min`` if lower is better, else
        ``max``. ``pin``: the name; one that another checkpoint has moves to this one. With several ranks call
        it on all of them; what rank 0 passes is stored.
        """
        request = Keep(None if metric is None else float(metric), mode, () if pin is None else (pin,))
        before = (self.checkpointer.retained.best, self._best_requested)
        is_best = all(request.is_better(than) for than in before)
        if is_best:
            self._best_requested = request
        if is_best or pin is not None:
            self._keep = merge(self._keep, request)
        return is_best

    @property
    def keeps(self) -> bool:
        """Whether ``keep`` has requested a save that has not begun."""
        return self._keep is not None

    def take_keep(self) -> Keep | None:
        """Return what ``keep`` has requested for the present state, once; for ``save(keep=...)``."""
        keep, self._keep = self._keep, None
        return keep

    def after(self, step: int, write: Write, meta: Mapping[str, Any] | None = None) -> None:
        """Report that ``step`` steps are done, and save if due."""
        self._step = step
        self.progress.report(step, self.steps)
        if self.should_save():
            self.save(step, write, meta)

    def save(
        self,
        step: int,
        write: Write,
        meta: Mapping[str, Any] | None = None,
        *,
        last: bool | None = None,
        paused_seconds: Callable[[], float] | None = None,
        replace: bool = False,
        keep: Keep | None = None,
        size: int = 0,
    ) -> bool:
        """Save now; return whether it succeeded.

        ``last`` (default: whether a notice was received): a failure raises ``SaveError``. ``paused_seconds``
        returns how long this save paused the training; default: the duration of this call. ``replace``: see
        ``Checkpointer.save``. ``keep``: why the checkpoint stays; default: as requested by ``keep``.
        ``size``: the bytes that this rank writes, if known: ``local`` is not used if two do not fit.
        """
        keep = keep or self.take_keep()
        last = self.notice.received if last is None else last
        started = self._clock()
        numbers = randomness.state() if self._has_randomness else None  # of now: a thread writes it

        def write_all(folder: Path) -> None:
            write(folder)
            if numbers is not None:
                (folder / randomness.FILE).write_text(numbers)

        try:
            is_far = self._levels.save(
                step, write_all, meta, replace=replace, keep=keep, is_last=last, size=size
            )
        except SaveError as error:
            self._best_requested = None
            if last:
                raise
            self._failed = error
            self._next_save_at = self._clock() + min(RETRY_SECONDS, self._levels.seconds)
            log.warning("step %d not saved, training continues: %s", step, error)
            return False
        self._failed = None
        if keep is not None and self._best_requested and keep.metric == self._best_requested.metric:
            self._best_requested = None  # stored: the checkpointer compares from here on
        paused = paused_seconds() if paused_seconds else self._clock() - started
        self.progress.saving_seconds += paused
        self.progress.report(step, self.steps, now=True)
        self._levels.saved(paused, is_far=is_far)
        self._next_save_at = self._clock() + self._levels.seconds
        return True

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Save the last step of a complete training inside; a ``SaveError`` is logged, not raised."""
        try:
            yield
        except SaveError as error:
            self._failed = error

    def finish(self, step: int | None = None) -> None:
        """Report the end of the training to the agent; log the error of the last save if it failed.

        After a notice the training counts as finished only if its last step is done. Releases the directory.
        """
        self._step = self._step if step is None else step
        if self._step is not None:
            self.progress.report(self._step, self.steps, now=True)
        is_complete = not self.notice.received or (
            self.steps is not None and self._step is not None and self._step >= self.steps
        )
        if is_complete:
            _ended.add(self.checkpointer.location)
            self.progress.finished()
        self.notice.close()
        self._levels.end(is_complete=is_complete)
        if self._failed is not None:
            log.error("last step not saved; the script continues to its end: %s", self._failed)
            self._failed = None

    def close(self) -> None:
        """Release the directory before the end: another training of this process may continue from it."""
        _ended.discard(self.checkpointer.location)
        self.notice.close()
        self._levels.end(is_complete=False)
