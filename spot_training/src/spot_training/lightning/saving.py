"""Saves between two steps: in the background when due, at a notice, and from a copy during validations."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from spot_training.errors import SaveError
from spot_training.spot import Spot
from spot_training.torch import state
from spot_training.torch.loop import LONG_STEP_SECONDS
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.saver import BackgroundSaver
from spot_training.torch.snapshot import StateCopy
from spot_training.torch.standby import Standby

_log = logging.getLogger("spot_training")


class StepSaves:
    """Saves copies of a training's state; all ranks do the same at the same step."""

    def __init__(self, spot: Spot, ranks: TorchRanks, copy_state: Callable[[], StateCopy]) -> None:
        """``copy_state`` returns a copy of this rank's state between two steps."""
        self._spot, self._ranks, self._copy_state = spot, ranks, copy_state
        self._saver = BackgroundSaver()
        self._standby = Standby(spot.notice, ranks)
        self._step_ended_at = time.monotonic()

    def between_steps(self, step: int, *, is_long: bool) -> None:
        """Save if due; save and raise ``SystemExit(0)`` after a notice.

        ``is_long``: more follows than a step, such as a validation: a copy of the state is held meanwhile.
        A step that follows one of ``LONG_STEP_SECONDS`` counts as such.
        """
        self._saver.check()
        is_first = self._ranks.rank == 0
        is_save_due = is_first and not self._saver.busy and self._spot.should_save()
        is_slow = is_first and time.monotonic() - self._step_ended_at > LONG_STEP_SECONDS
        stopping, is_save_due, is_slow = self._ranks.any(self._spot.should_stop(), is_save_due, is_slow)
        self.settle(step)
        if stopping:
            seconds_left = self._spot.notice.seconds_left
            [gives_way] = self._ranks.any(is_first and self._saver.must_give_way(seconds_left))
            if gives_way:
                self._saver.give_way()
            if step:
                self.write(self._copy_state())
            self._exit(step)
        if is_save_due or is_long or is_slow:
            copied = self._copy_state()
            if is_save_due:
                self._saver.start(partial(self._write, copied, in_background=True))
            if is_long or is_slow:
                self._standby.arm(partial(self.write, copied))
        self._step_ended_at = time.monotonic()

    def settle(self, step: int) -> None:
        """Drop the held copy on all ranks, or save it on all if one has begun to, and exit."""
        if self._standby.is_armed:
            [has_started] = self._ranks.any(self._standby.disarm())
            if has_started:
                self._standby.complete()
                self._exit(step)
            self._standby.drop()

    def drop(self) -> None:
        """Drop the held copy on this rank after an exception."""
        if not self._standby.disarm():
            self._standby.drop()

    def write(self, copied: StateCopy) -> None:
        """Commit a copy while the training waits; raises ``SaveError``."""
        self._saver.wait()
        self._write(copied, in_background=False)

    def _write(self, copied: StateCopy, *, in_background: bool) -> None:
        def check() -> None:
            if in_background and self._saver.gives_way:
                raise SaveError("gave way to the save at the notice")

        def write(folder: Path) -> None:
            if copied.error is not None:
                raise copied.error
            for name, content in copied.files.items():
                state.write(folder / name, content, check)

        paused_seconds = (lambda: copied.seconds) if in_background else None
        self._spot.save(
            copied.step, write, copied.meta, last=not in_background, paused_seconds=paused_seconds
        )

    def _exit(self, step: int) -> NoReturn:
        _log.warning("stopping for the interruption before step %d", step + 1)
        self._spot.progress.is_interrupted = lambda: True  # of this rank, too, if another had the notice
        raise SystemExit(0)
