"""Deterministic scheduler in simulated time: one thread for each task, of which one runs at a time.

A task runs until it sleeps; then the task that wakes first runs (ties: in order of start). Runs are
reproducible, and sleeps take no real time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pulumi_on_moto.errors import LocalCloudError

HANGS_AFTER = 60.0
"""Maximum real seconds of a task between two sleeps."""


class EndedError(BaseException):
    """Raised in the sleeping tasks of a terminated machine; no handler may catch it."""


@dataclass(eq=False)
class SimulatedTask:
    """A task with its thread; ``wake`` is when it continues, in epoch seconds."""

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
        """Return when it continues, if time may advance up to ``limit``."""
        return max(self.wake, min(self.quiet(), limit))

    @property
    def next(self) -> float:
        """Time of its next event that is visible to others."""
        return max(self.wake, self.quiet(), self.unnoticed())

    def resume(self) -> None:
        """Run it until it sleeps or ends."""
        if self._thread.ident is None:
            if self._ended:
                self.done = True
                return
            self._thread.start()
        self._go.release()
        if not self._back.acquire(timeout=HANGS_AFTER):
            self.done = True  # it is not resumed again
            raise LocalCloudError(f"{self.name} hangs: {HANGS_AFTER:g} s without a sleep or an end")

    def end(self) -> None:
        """End it in its sleep."""
        self._ended = True
        if not self.done:
            self.resume()

    def pause(self, wake: float) -> None:
        """Sleep until ``wake``; called by the task's own thread."""
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
        except BaseException as error:  # raised again by the scheduler
            self.error = error
        finally:
            self.done = True
            self._back.release()


class Scheduler:
    """Runs tasks in order of time; ``move`` is called with each new time."""

    def __init__(self, now: float, move: Callable[[float], None]) -> None:
        self.now = now
        self._move = move
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
        """Add a task that starts at ``at``.

        Until the time that ``quiet`` returns only time passes for it, so its sleeps may last until the end of
        the advance. Until the time of ``unnoticed`` its actions are not visible to others.
        """
        task = SimulatedTask(name, body, at, quiet, unnoticed)
        self._tasks.append(task)
        return task

    def end(self, tasks: Iterable[SimulatedTask]) -> None:
        """End tasks in their sleep."""
        for task in tasks:
            self._run(task, task.end)
        self._tasks = [task for task in self._tasks if not task.done]

    def advance(self, target_time: float) -> None:
        """Advance time to ``target_time`` and run all tasks that wake by then.

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
        """Let the running task sleep; no sleep for 0 or less."""
        assert self._current is not None, "only a task sleeps"
        if seconds > 0:
            self._current.pause(self.now + seconds)

    @property
    def next(self) -> float | None:
        """Time of the next visible event, None if there is none."""
        wake_at = min((task.next for task in self._tasks), default=math.inf)
        return None if wake_at == math.inf else wake_at

    def _to(self, now: float) -> None:
        if now > self.now:
            self.now = now
            self._move(now)

    def _run(self, task: SimulatedTask, step: Callable[[], None]) -> None:
        self._current = task
        try:
            step()
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
        """Return epoch seconds: this clock is never adjusted."""
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        """Sleep in simulated time."""
        self._scheduler.sleep(seconds)
