"""Saves between two steps: in the background when due, at a notice, from a copy while a step lasts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from spot_training.errors import SaveError, SpotTrainingError, log, one_line, say
from spot_training.levels.background import BackgroundSaver
from spot_training.nodes.membership import is_join_due
from spot_training.notice import Notice
from spot_training.spot import Spot
from spot_training.storage.retention import Keep
from spot_training.torch import state
from spot_training.torch.nodes import ALONE, World

LONG_STEP_SECONDS: Final = 10.0
"""After a step this long a copy of the state is held in case a notice comes during the next one."""
_WATCH_SECONDS: Final = 0.2
_EXIT_SECONDS: Final = 10.0
"""Time for the script to end by itself after the save; it may be inside a call that no signal interrupts."""
PARTS_FILE: Final = "parts.pt"
"""The state of the parts if it is the same at every rank, written by rank 0; else each has ``SHARD_FILE``."""


@dataclass
class LoopPosition:
    """The position between two steps, as the manifest stores it: ``meta["place"]``."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    samples: int = 0
    """Samples of all ranks together; 0 if the loader has its own state."""


@dataclass(frozen=True)
class StateCopy:
    """A copy of the state between two steps."""

    step: int
    meta: Mapping[str, Any]
    files: Mapping[str, Any]
    error: SaveError | None
    """Why it cannot be written."""
    seconds: float
    """How long it took."""
    keep: Keep = field(default_factory=Keep)
    """Why its checkpoint stays beside the newest ones."""


def copy_state(
    step: int, meta: Mapping[str, Any], copy_files: Callable[[], Mapping[str, Any]], keep: Keep | None = None
) -> StateCopy:
    """Return a copy of the state; a state that cannot be copied fails the save, not the training.

    ``copy_files`` returns copies of what this rank saves, by file name.
    """
    started, files = time.monotonic(), dict[str, Any]()
    error: SaveError | None = None
    try:
        files = dict(copy_files())
    except SaveError as reason:
        error = reason
    except (TypeError, ValueError, AttributeError) as reason:
        error = state.UnsupportedStateError(f"the state cannot be copied: {one_line(reason)}")
    return StateCopy(step, meta, files, error, time.monotonic() - started, keep or Keep())


def numbered(remaining: int | None, maximum: int) -> list[bool]:
    """Return a flag for each number of batches up to ``maximum`` that may remain, and one for more.

    Of ranks that take different numbers of batches in an epoch, some would wait for others for ever.
    """
    is_more = remaining is None or remaining > maximum
    return [*(remaining == number for number in range(maximum + 1)), is_more]


def _refuse_uneven(numbers: Sequence[bool]) -> None:
    if sum(numbers) > 1:
        raise SpotTrainingError(
            "the ranks have different numbers of batches in this epoch; give each the same "
            "number, such as by with_epoch(n) of WebDataset"
        )


class Standby:
    """Holds one save at a time, for a notice while the script is busy between two steps.

    A validation, a generation or a step may last longer than the notice. Meanwhile a thread watches for the
    notice, on all ranks; it writes the copy and ends the process. ``ranks``: ``TorchRanks``, to start it on
    all ranks together.
    """

    def __init__(self, notice: Notice, ranks: Any) -> None:
        self._notice, self._ranks, self._condition = notice, ranks, threading.Condition()
        self.save: Callable[[], object] | None = None
        """What it holds; on all ranks or on none between two of their agreements."""
        self._is_watching = self._has_started = False
        self._has_finished = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def arm(self, save: Callable[[], object]) -> None:
        """Hold a save, and start it at the notice."""
        with self._condition:
            self.save, self._is_watching = save, True
            self._condition.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="spot_training standby", daemon=True)
            self._thread.start()

    def disarm(self) -> bool:
        """Stop watching; return whether the save has started, else it never will by itself."""
        with self._condition:
            self._is_watching = False
            return self._has_started

    def complete(self) -> None:
        """Run the save, or wait for it if it has started; raise its error."""
        if not self._has_started and self.save is not None:
            self._run(self.save)
        self._has_finished.wait()
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Forget the save after ``disarm``."""
        self.save = None

    def _watch(self) -> None:
        while True:
            with self._condition:
                while not self._is_watching:
                    self._condition.wait()
            is_noticed = self._notice.received or self._ranks.is_stop_requested()
            if is_noticed and (save := self._begin()) is not None:
                self._ranks.request_stop()
                self._run(save)
                break
            with self._condition:
                self._condition.wait(_WATCH_SECONDS)
        if self._error is None:
            self._end_process()
        else:
            say(f"not saved at the notice: {one_line(self._error)}")

    def _begin(self) -> Callable[[], object] | None:
        """Return the save, which has then started; None if it was disarmed meanwhile."""
        with self._condition:
            save = self.save if self._is_watching else None
            self._has_started = save is not None
        return save

    def _run(self, save: Callable[[], object]) -> None:
        try:
            save()
        except BaseException as error:
            self._error = error
        finally:
            self._has_finished.set()

    def _end_process(self) -> None:
        """Raise ``SystemExit(0)`` in the main thread, else end the process; other nodes go on without it."""
        getattr(self._ranks, "world", ALONE).renew("saved for a node with a notice")
        self._notice.exits = True
        main = threading.main_thread().ident
        if self._notice.has_handler and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)
        threading.Event().wait(_EXIT_SECONDS)  # this thread ends with the interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class StepSaves:
    """Saves copies of a training's state; all ranks do the same at the same step.

    ``copy_state`` of its methods returns a copy of this rank's state between two steps.
    """

    def __init__(self, spot: Spot, ranks: Any, *, asynchronous: bool = True, replaces: bool = False) -> None:
        """``ranks``: ``TorchRanks``, or others with ``any``; without ``request_stop`` no copy is held.

        ``asynchronous``: training continues while a copy is written. ``replaces``: a copy of a step that is
        saved or restored already may have more than its checkpoint, and replaces it.
        """
        self._spot, self._ranks, self._asynchronous, self._replaces = spot, ranks, asynchronous, replaces
        self._world: World = getattr(ranks, "world", ALONE)
        self.saver = BackgroundSaver()
        """Writes a copy beside the training."""
        self._standby = Standby(spot.notice, ranks) if hasattr(ranks, "request_stop") else None
        self._committed: Callable[[], StateCopy | None] = lambda: None
        self._first: Mapping[str, Any] | None = None
        self._is_audited = not replaces
        self.is_slow = False
        """Whether the last step took longer than ``LONG_STEP_SECONDS``."""
        self.begin_step()

    @property
    def holds_copies(self) -> bool:
        """Whether a copy of the state is held while the script is busy."""
        return self._standby is not None

    def take_first(self) -> Mapping[str, Any] | None:
        """Return, once, the parts of the first committed save as they are stored; None if there is none."""
        if self._is_audited or self._first is None or self.saver.busy or self._spot.last_step is None:
            return None
        self._is_audited = True
        first, self._first = self._first, None  # a file that is mapped takes room after it was deleted
        return first

    def begin_step(self) -> None:
        """Measure the step from here."""
        self._step_ended_at = time.monotonic()

    def between_steps(
        self, step: int, copy_state: Callable[[], StateCopy], *, is_long: bool, remaining: Sequence[bool] = ()
    ) -> None:
        """Save if due, and let a node join then; save and raise ``SystemExit(0)`` after a notice.

        ``is_long``: more follows than a step, such as a validation or a step after a long one: a copy of the
        state is held meanwhile. ``remaining``: of ``numbered``; raises ``SpotTrainingError`` if ranks differ.
        """
        self.saver.check()
        self._spot.notice.take_back()
        self._spot.progress.report(step, self._spot.steps)
        is_first = self._ranks.rank == 0
        is_due = is_first and (self._spot.keeps or (not self.saver.busy and self._spot.should_save()))
        is_slow = is_first and time.monotonic() - self._step_ended_at > LONG_STEP_SECONDS
        joins = is_first and self._has_joining_nodes(is_due=is_due)
        stopping, is_due, self.is_slow, joins, *numbers = self._ranks.any(
            self._spot.should_stop(), is_due, is_slow, joins, *remaining
        )
        _refuse_uneven(numbers)
        self.settle(step)
        if stopping:
            seconds_left = self._spot.notice.seconds_left
            [gives_way] = self._ranks.any(is_first and self.saver.must_give_way(seconds_left))
            if gives_way:
                self.saver.gives_way.set()
            if step:
                self.save_last(copy_state)
            self._exit(step)
        if joins:
            self._let_join(step, copy_state)
            is_due = False
        holds = is_long or (self.is_slow and self._standby is not None)
        copied = self.start(copy_state) if is_due else None
        if holds:
            self.hold(copied or copy_state())
        self.begin_step()

    def begin_epoch(self, remaining: Sequence[bool]) -> None:
        """Raise ``SpotTrainingError`` as ``between_steps`` does, before the first batch."""
        self._spot.notice.take_back()  # the script may have set a handler since ``Loop(...)``
        _refuse_uneven(self._ranks.any(*remaining))

    def _has_joining_nodes(self, *, is_due: bool) -> bool:
        """Return whether nodes join: at a save that is due, or because they have waited for long enough."""
        if not self._world.waited_seconds:
            return False
        interval, members = self._spot.interval, len(self._world.nodes)
        save_seconds = (interval.cost or 0.0) + interval.price_seconds
        return is_due or (
            not self.saver.busy
            and is_join_due(self._world.waited_seconds, members, save_seconds=save_seconds)
        )

    def _let_join(self, step: int, copy_state: Callable[[], StateCopy]) -> None:
        """Save, and go on in the next world; a save that fails is logged."""
        started = time.monotonic()
        self.saver.wait()
        is_saved = self._write(copy_state(), is_last=False, paused_seconds=lambda: time.monotonic() - started)
        if is_saved:
            self._world.renew(f"saved at step {step} for a node that joins")
        self._world.waited_seconds = 0.0  # they wait as long again

    def start(self, copy_state: Callable[[], StateCopy]) -> StateCopy:
        """Save, in the background if ``asynchronous``; return the copy."""
        started = time.monotonic()
        self.saver.wait()
        copied = copy_state()
        if self._asynchronous:
            seconds = time.monotonic() - started
            save = partial(self._write, copied, is_last=False, paused_seconds=lambda: seconds)
            self.saver.start(save, gives_way=copied.keep == Keep())
        else:
            self._write(copied, is_last=False, paused_seconds=lambda: time.monotonic() - started)
        return copied

    def save_last(self, copy_state: Callable[[], StateCopy], *, stops_at: int | None = None) -> None:
        """Commit the present state, or raise ``SaveError``; ``stops_at``: a step, to exit after it."""
        self.saver.wait()
        self.write(copy_state())
        if stops_at is not None:
            self._exit(stops_at)

    def write(self, copied: StateCopy) -> None:
        """Commit a copy while the training waits; raises ``SaveError``."""
        started = time.monotonic() - copied.seconds
        self.saver.wait()
        self._write(copied, is_last=True, paused_seconds=lambda: time.monotonic() - started)

    def hold(self, copied: StateCopy | None) -> None:
        """Hold a copy, for a notice before the ranks' next agreement; None: nothing is to be saved then."""
        if self._standby is not None:
            self._standby.arm((lambda: None) if copied is None else partial(self.write, copied))

    def settle(self, step: int, *, is_stopping: bool = False) -> None:
        """Drop the held copy on all ranks, or save it on all if one has begun to, and exit.

        ``is_stopping``: save it in any case; without one, exit.
        """
        if self._standby is None or self._standby.save is None:
            if is_stopping:
                self.saver.wait()
                self._exit(step)
            return
        [has_started] = self._ranks.any(self._standby.disarm() or is_stopping)
        if has_started:
            self._standby.complete()
            self._exit(step)
        self._standby.drop()

    def keep_committed(self, step: int) -> None:
        """Let a committed checkpoint stay; its state is no longer in memory."""

        def write(folder: Path) -> None:
            raise SaveError("its state is in its checkpoint only")

        self._spot.save(step, write, last=False)

    def drop(self) -> None:
        """Drop the held copy on this rank, unless it is being saved."""
        if self._standby is not None and not self._standby.disarm():
            self._standby.drop()

    def _write(self, copied: StateCopy, *, is_last: bool, paused_seconds: Callable[[], float]) -> bool:
        def check() -> None:
            if not is_last and self.saver.gives_way.is_set():
                raise SaveError("gave way to the save at the notice")

        def write(folder: Path) -> None:
            if copied.error is not None:
                raise copied.error
            for name, content in copied.files.items():
                state.write(folder / name, content, check)
            if not self._is_audited and PARTS_FILE in copied.files:
                self._first = state.read(folder / PARTS_FILE, is_mapped=True)

        is_saved = self._spot.save(
            copied.step,
            write,
            copied.meta,
            last=is_last,
            paused_seconds=paused_seconds,
            replace=self._replaces and copied is not self._committed(),
            keep=copied.keep,
            size=state.size(copied.files),
        )
        if is_saved:
            self._committed = weakref.ref(copied)
        return is_saved

    def _exit(self, step: int) -> NoReturn:
        self._world.renew(f"saved at step {step} for a node with a notice")
        log.warning("saved at step %d; stopping for the interruption", step)
        self._spot.progress.is_interrupted = lambda: True  # of this rank, too, if another had the notice
        self._spot.notice.call_previous()
        raise SystemExit(0)
