"""Where and when a training saves: on a disk of this machine, and where other machines see it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from spot_training.checkpointer import Checkpointer, Write
from spot_training.errors import InUseError, SaveError, SpotTrainingError, log, say
from spot_training.interval import Interval
from spot_training.levels.background import BackgroundSaver
from spot_training.levels.local_level import LOCAL_VARIABLE, LocalLevel
from spot_training.storage.manifest import Checkpoint
from spot_training.storage.retention import Keep

RETRY_SECONDS: Final = 60.0
"""Maximum delay before a failed save or copy is retried."""


class CheckpointLevels:
    """Saves to ``far``; with a directory of this machine there, and at longer intervals to ``far``.

    With ``local`` the saves by the interval go there; each time the interval of ``far`` is over, the next one
    is copied to it. The state at a notice and at the end, one that is to stay (`Keep`), and all if ``local``
    fails are saved to ``far``.
    """

    def __init__(
        self,
        far: Checkpointer,
        interval: Interval,
        local: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        seconds_left: Callable[[], float | None] = lambda: None,
    ) -> None:
        """``local``: default ``$GPU_SPOT_LOCAL_CHECKPOINTS``; ``seconds_left``: until a notice's deadline."""
        root = os.environ.get(LOCAL_VARIABLE, "") if local is None else local
        self._far, self._interval = far, interval
        self._local = LocalLevel(root, far) if str(root) else None
        self._has_local = self._local is not None
        self._local_interval = interval.unpaid()
        self._clock, self._seconds_left = clock, seconds_left
        self._copier = BackgroundSaver()
        self._copy_due_at = clock()
        self._has_reported = False
        for level in filter(None, (far, self._local)):
            level.stop_waiting_before(seconds_left)

    @property
    def seconds(self) -> float:
        """Seconds from the end of a save to the start of the next."""
        return (self._interval if self._local is None else self._local_interval).seconds

    @property
    def last_step(self) -> int | None:
        """The step that this process last saved or restored, on either level."""
        steps = (level.last_step for level in filter(None, (self._far, self._local)))
        return max((step for step in steps if step is not None), default=None)

    def restore(self) -> Checkpoint | None:
        """See ``Checkpointer.restore``: the newest checkpoint of both levels."""
        if self._local is not None:
            try:
                self._local.open()
            except (InUseError, SaveError) as error:
                self._give_up_local(str(error))
        return self._far.restore(self._local)

    def save(
        self,
        step: int,
        write: Write,
        meta: Mapping[str, Any] | None,
        *,
        replace: bool,
        keep: Keep | None,
        is_last: bool,
        size: int = 0,
    ) -> bool:
        """Save, see ``Spot.save``; return whether ``far`` has it. ``SaveError``: nothing was committed."""
        stays = keep is not None and (keep.metric is not None or len(keep.pins) > 0)
        if self._local is not None and not self._goes_to_far(is_last or stays, size):
            if self.last_step == step and not replace:  # either level has it
                return False
            try:
                self._local.save(step, write, meta, replace=replace)
            except (InUseError, SaveError) as error:
                self._give_up_local(str(error))
            else:
                return False
        if self._has_local:
            self._far.on_first(lambda: self._end_copy(step if not replace else None))
        try:
            self._far.save(step, write, meta, replace=replace, keep=keep)
        except SaveError:
            if is_last and self._local is not None:
                self._far.on_first(lambda: self._copy_now(self.last_step))
            raise
        return True

    def saved(self, paused_seconds: float, *, is_far: bool) -> None:
        """Record a save and for how long it paused the training; copy it to ``far`` if that is due."""
        if is_far:
            self._interval.saved(paused_seconds)
            self._committed(self._far.last_size)
        else:
            self._local_interval.saved(paused_seconds)
            is_due, local = self._clock() >= self._copy_due_at and not self._copier.busy, self._local
            if is_due and self._is_first and local is not None and self._is_newer(local.last_step):
                self._copier.start(partial(self._copy, local, local.last_step or 0))

    def end(self, *, is_complete: bool) -> None:
        """Release both directories; ``far`` has the newest step, and after a complete training it alone."""
        local = self._local
        if self._is_first and self._has_local:
            self._end_copy(local.last_step if local is not None else None)
            if is_complete and local is not None and self._far.last_step == self.last_step:
                local.clear()
        for level in filter(None, (local, self._far)):
            level.close()

    def _goes_to_far(self, is_requested: bool, size: int) -> bool:
        """Return on all ranks what rank 0 passes: a notice may reach others later; add up their sizes."""
        passed = [json.loads(text) for text in self._far.ranks.gather(json.dumps([is_requested, size]))]
        if self._local is not None:
            self._local.expect(sum(size for _, size in passed))
        return bool(passed[0][0])

    @property
    def _is_first(self) -> bool:
        return self._far.ranks.rank == 0

    def _end_copy(self, step: int | None) -> None:
        """End a running copy before ``step`` is saved to ``far``; copy ``step`` itself if it is here.

        A copy of an earlier step gives way, except at a notice that leaves time for both, or for it alone.
        """
        seconds = self._seconds_left()
        if self._copier.busy and (seconds is None or self._copier.must_give_way(seconds)):
            self._copier.gives_way.set()
        self._copier.wait()
        if self._local is not None and self._local.last_step == step:
            self._copy_now(step)

    def _copy_now(self, step: int | None) -> None:
        """Copy the newest local checkpoint if ``far`` has an older one; a failure is logged."""
        if self._local is not None and step is not None and self._is_newer(step):
            try:
                self._local.copy_up(step)
            except SpotTrainingError as error:
                log.warning("step %d not copied: %s", step, error)

    def _is_newer(self, step: int | None) -> bool:
        """Return whether ``far`` does not have a step of the local level."""
        return step is not None and (self._far.last_step is None or step > self._far.last_step)

    def _copy(self, local: LocalLevel, step: int) -> None:
        def check() -> None:
            if self._copier.gives_way.is_set():
                raise SaveError("gave way")

        started = self._clock()
        try:
            size = local.copy_up(step, check)
        except SpotTrainingError as error:
            if not self._copier.gives_way.is_set():
                self._copy_due_at = self._clock() + min(RETRY_SECONDS, self._interval.seconds)
                log.warning("step %d not copied, training continues: %s", step, error)
            return
        self._interval.copied(self._clock() - started)
        self._committed(size)

    def _committed(self, size: int | None) -> None:
        """Record the size of what ``far`` has now; log at the first what a lost machine loses."""
        if size is None:
            return
        self._interval.wrote(size)
        seconds = self._interval.seconds
        self._copy_due_at = self._clock() + seconds
        if self._local is not None and not self._has_reported:
            self._has_reported = True
            often = self._local_interval.seconds
            say(
                f"saves in {self._local.location} every {often:.0f} s, copied to {self._far.location} every"
                f" {seconds:.0f} s and at a notice: a machine that is lost without one loses up to"
                f" {often + seconds:.0f} s"
            )

    def _give_up_local(self, text: str) -> None:
        """Use ``far`` alone from here on."""
        local, self._local = self._local, None
        if local is not None:
            local.close()
            log.warning("local storage is not used any more, saves go to %s: %s", self._far.location, text)
