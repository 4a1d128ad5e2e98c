"""What a training loop asks at each step: save now? stop now? The adapters are built on it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from spot_training.checkpointer import Checkpointer, Saved, Write
from spot_training.errors import SaveError
from spot_training.interval import Interval
from spot_training.notice import Notice
from spot_training.progress import Progress

RETRY_SECONDS = 60.0
"""How soon a save that failed is tried again."""
_log = logging.getLogger("spot_training")


class Spot:
    """A training that may end at any step: checkpoints, the notice, the interval and the progress together.

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

    A save at the interval that fails is said and tried again a minute later: it ends no training. A last one
    that fails raises, so that the exit code tells it.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        steps: int | None = None,
        checkpointer: Checkpointer | None = None,
        notice: Notice | None = None,
        interval: Interval | None = None,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        """``place``, ``options``: see ``Checkpointer``.

        ``steps``: how many there will be in all, if known.
        """
        self.notice = notice or Notice()
        self.checkpointer = checkpointer or Checkpointer(place, **options)
        self.interval = interval or Interval()
        self.progress = progress or Progress()
        self.steps = steps
        self._clock = clock
        self._due = clock() + self.interval.seconds
        self._failed: SaveError | None = None

    def restore(self) -> Saved | None:
        """See ``Checkpointer.restore``; the interval begins, and the agent hears where it goes on."""
        saved = self.checkpointer.restore()
        self.progress.tell(saved.step if saved else 0, self.steps, now=True)
        self._due = self._clock() + self.interval.seconds
        return saved

    def should_stop(self) -> bool:
        """Tell whether to save and end now."""
        return self.notice.told

    def should_save(self) -> bool:
        """Tell whether a save is due: by the interval, or because it is the last chance."""
        return self._clock() >= self._due or self.notice.told

    def after(self, step: int, write: Write, meta: Mapping[str, Any] | None = None) -> None:
        """Tell the agent that ``step`` steps are done, and save if it is time."""
        self.progress.tell(step, self.steps)
        if self.should_save():
            self.save(step, write, meta)

    def save(
        self,
        step: int,
        write: Write,
        meta: Mapping[str, Any] | None = None,
        *,
        last: bool | None = None,
        stood: Callable[[], float] | None = None,
    ) -> bool:
        """Save now; tell whether it succeeded.

        ``last``, by default once told: a failure raises ``SaveError``. ``stood`` tells for how many
        seconds training stood for this save, where that is not as long as this call takes.
        """
        last = self.notice.told if last is None else last
        begun = self._clock()
        try:
            self.checkpointer.save(step, write, meta)
        except SaveError as error:
            if last:
                raise
            self._failed = error
            self._due = self._clock() + min(RETRY_SECONDS, self.interval.seconds)
            _log.warning("step %d is not saved, training goes on: %s", step, error)
            return False
        self._failed = None
        self.progress.tell(step, self.steps, now=True)
        self.interval.saved(stood() if stood else self._clock() - begun)
        self._due = self._clock() + self.interval.seconds
        return True

    def finish(self, step: int | None = None) -> None:
        """End: tell the agent the last step; raise the ``SaveError`` that no later save made good."""
        if step is not None:
            self.progress.tell(step, self.steps, now=True)
        self.notice.close()
        if self._failed is not None:
            raise self._failed
