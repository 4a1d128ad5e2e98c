"""Whether a request can meet its deadline; one that cannot is refused, with a time to retry.

While more requests arrive than workers complete, each waits until just before its deadline, and is then run
in vain. So workers refuse what they could not complete in time, and say with each reply how long its request
has waited; from that a client knows that a request would be refused, and does not send it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

MIN_RETRY_SECONDS: Final = 1.0
"""Least time to retry after."""
_RUNS: Final = 8
"""Batches whose duration a worker remembers."""


class QueueDelay(NamedTuple):
    """What a worker says of its queue with a reply.

    ``wait_seconds``: how long the request waited until it was run or refused. ``run_seconds``: the shortest
    of the worker's last batches.
    """

    wait_seconds: float
    run_seconds: float

    def within(self, seconds: float) -> QueueDelay:
        """Return it with neither time above ``seconds``."""
        return QueueDelay(min(self.wait_seconds, seconds), min(self.run_seconds, seconds))


class RunTimes:
    """The durations of a worker's last batches; one thread records them, any may read `shortest`."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_RUNS)
        self.shortest = 0.0
        """Seconds that a batch takes at least; 0 if unknown."""

    def record(self, seconds: float) -> None:
        """Add the duration of a batch."""
        self._seconds.append(seconds)
        self.shortest = min(self._seconds)


def lateness(sent_at: float | None, deadline: float | None, now: float, run_seconds: float) -> float | None:
    """Return the seconds by which a worker that begins now misses a deadline; None: it can meet it.

    It cannot if the deadline has passed, or if even its shortest batch would end later. A request that has
    waited for less than a batch is run all the same: it is not late for its wait, and a first batch may take
    much longer than those after it.

    Args:
        sent_at: when the request was sent, epoch seconds; None if unknown.
        deadline: epoch seconds; None: it has none.
        now: epoch seconds.
        run_seconds: `RunTimes.shortest`.
    """
    if deadline is None:
        return None
    has_waited = sent_at is not None and now - sent_at >= run_seconds
    late = now + (run_seconds if has_waited else 0.0) - deadline
    return late if late > 0 else None


class WaitEstimate:
    """How long a client's next request would wait, from the newest reply; safe to use from many threads.

    A wait of a minute that was reported half a minute ago is taken for half a minute: the queue empties
    unless others send. So a client that has refused requests sends one again after the time to retry, and one
    after each report, if it has no other: the first reply after an outage reports a wait that is over.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._newest: dict[str, tuple[float, float]] = {}
        """By priority: when the queue is empty, on the clock, and the seconds of a run."""
        self._tried: set[str] = set()  # priorities of which one was let through since the newest report

    def record(self, priority: str, delay: QueueDelay) -> None:
        """Add what a worker said with the reply to a request of this priority."""
        self._newest[priority] = self._clock() + delay.wait_seconds, delay.run_seconds
        self._tried.discard(priority)

    def lateness(self, priority: str, timeout: float, *, is_only: bool = False) -> float | None:
        """Return the seconds by which a request sent now would miss its deadline; None: it can meet it.

        Without a wait it can: how long a run takes, only the worker knows. ``is_only``: no other is open.
        """
        empty_at, run_seconds = self._newest.get(priority, (0.0, 0.0))
        wait = empty_at - self._clock()
        late = wait + run_seconds - timeout
        if wait <= 0 or late <= 0:
            return None
        if is_only and priority not in self._tried:
            self._tried.add(priority)
            return None
        return late


def retry_after(late: float) -> float:
    """Return the seconds after which a request that would be this late may be sent again."""
    return max(late, MIN_RETRY_SECONDS)
