"""Work beside a loop that must not wait: with a time limit, and errors that stay with their owner."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError, WorkCancelledError

T = TypeVar("T")

BackgroundRunner = Callable[[Callable[[], None]], None]
"""Runs a function in the background, for example in a thread."""
MAX_BACKOFF_SECONDS: Final = 300.0
_MIN_BACKOFF_SECONDS: Final = 2.0
_WAIT_INTERVAL_SECONDS: Final = 0.5


class SilentError(AgentError):
    """A background query has not returned within its time limit; it still runs."""


class UnforeseenError(AgentError):
    """An exception that no code foresaw, with its type; its traceback is in the log."""


def at_once(work: Callable[[], None]) -> None:
    """Run ``work`` in the caller: nothing it calls leaves the process."""
    work()


def in_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread that does not keep the process alive."""
    threading.Thread(target=work, daemon=True).start()


def backoff(
    failures: int, minimum: float = _MIN_BACKOFF_SECONDS, maximum: float = MAX_BACKOFF_SECONDS
) -> float:
    """Return the seconds before the next try after ``failures`` in a row: 2, 4, 8 … 300."""
    return min(minimum * 2.0 ** (min(failures, 20) - 1), maximum)


def unforeseen(error: Exception) -> UnforeseenError:
    """Return what an exception that is not an `AgentError` means for its owner: a failure with a reason."""
    return UnforeseenError(f"{type(error).__name__}: {error}")


class BackgroundPoller(Generic[T]):
    """Runs one query repeatedly in the background, at most one at a time, without blocking.

    A query that takes longer than ``seconds`` counts as failed, again after each further ``seconds``; no
    second one is started meanwhile, and its result still counts. The next one starts ``interval`` after it.
    """

    def __init__(
        self,
        name: str,
        query: Callable[[], T],
        run_in_background: BackgroundRunner,
        clock: Clock,
        seconds: float,
        interval: float = 0.0,
    ) -> None:
        self._name = name
        self._query = query
        self._run_in_background = run_in_background
        self._clock = clock
        self._seconds = seconds
        self._result: queue.SimpleQueue[tuple[T] | AgentError] = queue.SimpleQueue()
        self._interval = interval
        self._began_at = self._silent_at = self.due_at = 0.0
        self.is_running = False
        self.error, self.failures = "", 0
        """The last failure that `take` met since the last result, and their number."""

    def poll(self) -> T | None:
        """Start the query if it is due; return its result once available, else None.

        Raises:
            SilentError: it has not returned in time.
            AgentError: what the query raised; an `UnforeseenError` for any other exception.
        """
        now = self._clock.monotonic()
        if not self.is_running:
            if now < self.due_at:
                return None
            self.is_running, self._began_at = True, now
            self._silent_at = self._began_at + self._seconds
            try:
                self._run_in_background(self._work)
            except RuntimeError as error:  # no thread can be started
                self._result.put(unforeseen(error))
        try:
            result = self._result.get_nowait()
        except queue.Empty:
            if now < self._silent_at:
                return None
            self._silent_at = now + self._seconds
            raise SilentError(
                f"{self._name} has not answered for {now - self._began_at:.0f} s, longer than "
                f"{self._seconds:.0f} s"
            ) from None
        self.is_running, self.due_at = False, now + self._interval
        if isinstance(result, AgentError):
            raise result
        return result[0]

    def take(self) -> T | None:
        """Poll; a failure is logged, once while it stays the same, and is not a result."""
        try:
            result = self.poll()
        except AgentError as error:
            if self.error != str(error):
                log.error(f"{self._name} fails", error=str(error))
            self.error, self.failures = str(error), self.failures + 1
            return None
        if result is not None and self.error:
            self.error, self.failures = "", 0
            log.info(f"{self._name} recovered")
        return result

    def wait(self, on_poll: Callable[[], None] = lambda: None) -> T:
        """Poll until the result is there, at most the time limit; raises as `poll`."""
        while (result := self.poll()) is None:
            on_poll()
            self._clock.sleep(_WAIT_INTERVAL_SECONDS)
        return result

    def _work(self) -> None:
        try:
            if (result := self._query()) is None:
                raise ValueError("no result")
            self._result.put((result,))
        except AgentError as error:  # raised again by poll()
            self._result.put(error)
        except Exception as error:
            log.error("background work failed", work=self._name, exc_info=True)
            self._result.put(unforeseen(error))


class Lane:
    """Runs actions in the background in their order, one at a time; a failed one is logged and skipped."""

    def __init__(self, name: str, run_in_background: BackgroundRunner, clock: Clock, seconds: float) -> None:
        self._name = name
        self._clock = clock
        self._actions: deque[Callable[[], None]] = deque()
        self._poller = BackgroundPoller(name, self._next, run_in_background, clock, seconds)

    @property
    def is_idle(self) -> bool:
        """Whether everything has run."""
        return not self._actions and not self._poller.is_running

    def submit(self, action: Callable[[], None]) -> None:
        """Append an action."""
        self._actions.append(action)
        self.poll()

    def poll(self) -> None:
        """Start the next action, if any; call it in every loop."""
        while self._poller.is_running or self._actions:
            try:
                if self._poller.poll() is None:
                    return
            except AgentError as error:
                log.warning(f"{self._name} failed", error=str(error))

    def flush(self, seconds: float) -> None:
        """Wait until everything has run, at most ``seconds``."""
        end = self._clock.monotonic() + seconds
        while True:
            self.poll()
            if self.is_idle or self._clock.monotonic() >= end:
                return
            self._clock.sleep(_WAIT_INTERVAL_SECONDS)

    def _next(self) -> bool:
        self._actions.popleft()()
        return True


class Guard:
    """Keeps an exception with its owner: it is logged and counted, and postpones that owner's steps only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._resume_at: dict[str, float] = {}

    def run(self, owner: str, step: Callable[[], T], *, postpones: bool = True) -> T | None:
        """Run a step of ``owner``; return its result, None if it failed or is postponed.

        ``postpones``: after a failure the owner's steps are skipped for a while, doubled each time; false for
        steps that reap, drain or kill.

        Raises:
            LeaseLostError, WorkCancelledError: they end the work, whoever meets them.
        """
        if postpones and self._clock.monotonic() < self._resume_at.get(owner, 0.0):
            return None
        try:
            result = step()
        except (LeaseLostError, WorkCancelledError):
            raise
        except Exception as error:
            failures = self._failures[owner] = self._failures.get(owner, 0) + 1
            self._resume_at[owner] = self._clock.monotonic() + backoff(failures)
            if failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, 8th …
                log.error(
                    "step failed",
                    owner=owner,
                    error=f"{type(error).__name__}: {error}",
                    failures=failures,
                    exc_info=not isinstance(error, AgentError),
                )
            return None
        self._failures.pop(owner, None)
        return result
