"""Checkpoints, notice, interval and progress for a training loop; the adapters use it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from spot_training.checkpointer import Checkpoint, Checkpointer, Write
from spot_training.deprecation import renamed_arguments
from spot_training.errors import SaveError
from spot_training.interval import Interval
from spot_training.notice import Notice
from spot_training.progress import Progress

RETRY_SECONDS = 60.0
"""Maximum delay before a failed save is retried."""
_log = logging.getLogger("spot_training")


class Spot:
    """A training that can be interrupted at any step.

    It combines `Checkpointer`, `Notice`, `Interval` and `Progress`.

    Example::

        spot = Spot(steps=10_000)
        saved = spot.restore()
        if saved:
            model.load(saved.part() / "model")
        for step in range(saved.step if saved else 0, 10_000):
            train(step)
            spot.after(step + 1, lambda folder: model.save(folder / "model"))
            if spot.should_stop():
                break
        spot.finish()

    A failed periodic save is logged and retried within a minute; training continues. A failed last save
    raises.
    """

    @renamed_arguments(place="location")
    def __init__(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        steps: int | None = None,
        checkpointer: Checkpointer | None = None,
        notice: Notice | None = None,
        interval: Interval | None = None,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        """``location``, ``options``: see ``Checkpointer``.

        ``steps``: the total number of steps, if known.
        """
        self.notice = notice or Notice()
        self.checkpointer = checkpointer or Checkpointer(location, **options)
        self.interval = interval or Interval()
        self.progress = progress or Progress()
        self.steps = steps
        self._clock = clock
        self._next_save_at = clock() + self.interval.seconds
        self._failed: SaveError | None = None

    def restore(self) -> Checkpoint | None:
        """See ``Checkpointer.restore``; also starts the interval and reports the step to the agent."""
        saved = self.checkpointer.restore()
        self.progress.report(saved.step if saved else 0, self.steps, now=True)
        self._next_save_at = self._clock() + self.interval.seconds
        return saved

    def should_stop(self) -> bool:
        """Return whether a notice was received: save and stop now."""
        return self.notice.received

    def should_save(self) -> bool:
        """Return whether a save is due: by the interval, or because a notice was received."""
        return self._clock() >= self._next_save_at or self.notice.received

    def after(self, step: int, write: Write, meta: Mapping[str, Any] | None = None) -> None:
        """Report that ``step`` steps are done, and save if due."""
        self.progress.report(step, self.steps)
        if self.should_save():
            self.save(step, write, meta)

    @renamed_arguments(stood="paused_seconds")
    def save(
        self,
        step: int,
        write: Write,
        meta: Mapping[str, Any] | None = None,
        *,
        last: bool | None = None,
        paused_seconds: Callable[[], float] | None = None,
    ) -> bool:
        """Save now; return whether it succeeded.

        ``last`` (default: whether a notice was received): a failure raises ``SaveError``. ``paused_seconds``
        returns how long this save paused the training, if that differs from the duration of this call.
        """
        last = self.notice.received if last is None else last
        started = self._clock()
        try:
            self.checkpointer.save(step, write, meta)
        except SaveError as error:
            if last:
                raise
            self._failed = error
            self._next_save_at = self._clock() + min(RETRY_SECONDS, self.interval.seconds)
            _log.warning("step %d not saved, training continues: %s", step, error)
            return False
        self._failed = None
        self.progress.report(step, self.steps, now=True)
        self.interval.saved(paused_seconds() if paused_seconds else self._clock() - started)
        self._next_save_at = self._clock() + self.interval.seconds
        return True

    def finish(self, step: int | None = None) -> None:
        """Report the last step to the agent; raise the ``SaveError`` of the last save if it failed."""
        if step is not None:
            self.progress.report(step, self.steps, now=True)
        self.notice.close()
        if self._failed is not None:
            raise self._failed
