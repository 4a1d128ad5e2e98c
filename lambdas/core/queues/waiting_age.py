"""The age of the oldest waiting message of an SQS queue.

SQS reports the age of the oldest message that is not deleted, one in work included. A request in work for an
hour would look like an hour of waiting. But as with RabbitMQ (`history.py`), of ``ready`` messages the oldest
is at least as old as the ``ready``-th newest sent one, and if messages are received in about the order of
sending, it is about that old.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MINUTE_SECONDS: Final = 60
MAX_LOOKBACK_SECONDS: Final = 3 * 3600
"""How far back the sent messages are counted."""


def oldest_waiting(
    ready: int,
    in_flight: int,
    oldest_seconds: float | None,
    sent: Mapping[float, float],
    now: float,
    previous: tuple[float, float] | None,
) -> float | None:
    """Return the age in seconds of the oldest waiting message; None if it is unknown.

    Args:
        ready: messages that wait.
        in_flight: messages in work.
        oldest_seconds: age of the oldest message that is not deleted, waiting or in flight; None: unknown.
        sent: messages sent in each minute, by the minute's beginning (epoch seconds).
        now: epoch seconds.
        previous: time and result of the last call. The counts lag by some minutes, and a message that is not
            counted yet would look old; the oldest one can be no older than the last one plus the time since.
    """
    if not ready:
        return 0.0
    if oldest_seconds is None or not in_flight:
        return oldest_seconds
    bounds = [oldest_seconds, _age_of_sent(ready, sent, now)]
    if previous is not None and previous[0] < now:
        bounds.append(previous[1] + now - previous[0])
    return min(bounds)


def _age_of_sent(ready: int, sent: Mapping[float, float], now: float) -> float:
    """Return the age of the ``ready``-th newest sent message; infinite if it was not counted."""
    counted = 0.0
    for minute in sorted(sent, reverse=True):
        counted += sent[minute]
        if counted >= ready:
            return max(0.0, now - minute)
    return float("inf")
