"""Simulated time for code that sleeps: a thread each, of which exactly one runs at a time.

A task runs until it sleeps; the task that wakes first runs next, in the order of their start where two wake
at once. So a run is the same every time, and takes no longer than its work.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pulumi_on_moto.errors import LocalCloudError

HANGS_AFTER: Final = 60.0
"""Seconds of real time from one sleep of a task to the next: it computes little and waits for nobody."""


class EndedError(BaseException):
    """The machine is gone: raised in its tasks where they sleep. No handler of theirs may catch it."""


@dataclass(eq=False)
class SimulatedTask:
    """One line of execution. ``wake`` is when it goes on, in epoch seconds."""

    name: str
    body: Callable[[], object]
    wake: float
    quiet: Callable[[], float]
    unnoticed: Callable[[], float]

    def __post_init__(self) -> None:
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.error: BaseException | None = None
        self.done = False

    def due_at(self, limit: float) -> float:
        """Return when it goes on, ``until`` being how far time may move for now."""
        return max(self.wake, min(self.quiet(), limit))

    @property
    def next(self) -> float:
        """When it next does something that others may notice."""
        return max(self.wake, self.quiet(), self.unnoticed())

    def resume(self, hangs_after: float) -> None:
        """Let it run until it sleeps or ends."""
        if self._thread.ident is None:
            if self._ended:
                self.done = True
                return
            self._thread.start()
        self._go.release()
        if not self._back.acquire(timeout=hangs_after):
            self.done = True  # nobody waits for it again
            raise LocalCloudError(f"{self.name} hangs: {hangs_after:g} s without a sleep or an end")

    def end(self, hangs_after: float) -> None:
        """End it where it sleeps."""
        self._ended = True
        if not self.done:
            self.resume(hangs_after)

    def pause(self, wake: float) -> None:
        """Called by its own thread: hand the baton back until ``wake``."""
        self.wake = wake
        self._back.release()
        self._go.acquire()
        if self._ended:
            raise EndedError(self.name)

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._ended:
                self.body()
        except EndedError:
            pass
        except BaseException as error:  # handed to whoever advances time
            self.error = error
        finally:
            self.done = True
            self._back.release()


class Scheduler:
    """Plays tasks in the order of time; ``move`` is told each time that is reached."""

    def __init__(self, now: float, move: Callable[[float], None], hangs_after: float = HANGS_AFTER) -> None:
        self.now = now
        self._move = move
        self._hangs_after = hangs_after
        self._tasks: list[SimulatedTask] = []
        self._current: SimulatedTask | None = None

    def start(
        self,
        name: str,
        body: Callable[[], object],
        at: float,
        quiet: Callable[[], float] = lambda: 0.0,
        unnoticed: Callable[[], float] = lambda: 0.0,
    ) -> SimulatedTask:
        """Add a task that begins at ``at``.

        Until the time that ``quiet`` returns nothing but the passing of time happens to it: its sleeps may
        then last until time stops moving. Until the one of ``unnoticed`` it goes on by itself, but what it
        does concerns nobody else.
        """
        task = SimulatedTask(name, body, at, quiet, unnoticed)
        self._tasks.append(task)
        return task

    def end(self, tasks: Iterable[SimulatedTask]) -> None:
        """End tasks where they sleep; they go no further."""
        for task in tasks:
            self._run(task, task.end)
        self._tasks = [task for task in self._tasks if not task.done]

    def advance(self, target_time: float) -> None:
        """Move time on to ``until`` and let everybody who wakes by then run.

        Raises ``LocalCloudError`` for a task that neither sleeps nor ends, and whatever a task raises.
        """
        while True:
            next_task = min(self._tasks, key=lambda task: task.due_at(target_time), default=None)
            if next_task is None or next_task.due_at(target_time) > target_time:
                break
            self._to(max(self.now, next_task.due_at(target_time)))
            self._run(next_task, next_task.resume)
            if next_task.done:
                self._tasks.remove(next_task)
        self._to(target_time)

    def sleep(self, seconds: float) -> None:
        """Let the running task sleep; not at all for 0 or less."""
        assert self._current is not None, "only a task sleeps"
        if seconds > 0:
            self._current.pause(self.now + seconds)

    @property
    def next(self) -> float | None:
        """When something next happens by itself, None where nothing will."""
        wake_at = min((task.next for task in self._tasks), default=math.inf)
        return None if wake_at == math.inf else wake_at

    @property
    def running(self) -> str | None:
        """The name of the task that runs now, None where none does."""
        return None if self._current is None else self._current.name

    def _to(self, now: float) -> None:
        if now > self.now:
            self.now = now
            self._move(now)

    def _run(self, task: SimulatedTask, step: Callable[[float], None]) -> None:
        self._current = task
        try:
            step(self._hangs_after)
        finally:
            self._current = None
        if task.error is not None:
            raise task.error


class SimulatedClock:
    """The agent's clock (``userdata.agent.machine.clock.Clock``) in a scheduler's time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def wall(self) -> float:
        """Return epoch seconds."""
        return self._scheduler.now

    def monotonic(self) -> float:
        """Return epoch seconds, too: nobody sets this clock."""
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        """Hand the baton on."""
        self._scheduler.sleep(seconds)
