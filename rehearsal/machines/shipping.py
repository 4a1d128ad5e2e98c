"""What the agents of simulated nodes say, in the log group of their group, as the CloudWatch agent ships it.

On AWS a line begins with what rsyslog puts before it, and comes some seconds later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from userdata.agent.machine import log

_STREAM: Final = "units"
_MAX_LINES: Final = 500
"""Lines of one call; AWS takes 10,000, and 1 MB of them (API reference, PutLogEvents)."""


class Shipper(logging.Handler):
    """Collects the lines of the node that speaks, and ships them when it is told to.

    ``speaker`` returns the id of the instance whose code runs now, None where nobody's does; ``logs`` is
    CloudWatch Logs' client, ``now`` tells simulated time.
    """

    def __init__(
        self, logs: Callable[[], Any], speaker: Callable[[], str | None], now: Callable[[], float]
    ) -> None:
        super().__init__()
        self.setFormatter(log.JsonFormatter())
        self._logs = logs
        self._speaker = speaker
        self._now = now
        self._groups: dict[str, str] = {}
        self._streams: set[str] = set()
        self._waiting: dict[str, list[dict[str, Any]]] = {}

    def know(self, instance: str, stack: str, group: str) -> None:
        """An instance belongs to a group of a stack, as its own configuration says."""
        self._groups[instance] = f"/gpu-spot/{stack}/instances/{group}"

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; one that nobody of ours says is not shipped."""
        instance = self._speaker()
        if instance in self._groups:
            line = {"timestamp": round(1000 * self._now()), "message": self.format(record)}
            self._waiting.setdefault(instance, []).append(line)

    def ship(self) -> None:
        """Put all lines that wait where people read them."""
        for instance, lines in self._waiting.items():
            stream = {"logGroupName": self._groups[instance], "logStreamName": f"{instance}/{_STREAM}"}
            if instance not in self._streams:
                self._streams.add(instance)
                self._logs().create_log_stream(**stream)
            for start in range(0, len(lines), _MAX_LINES):
                self._logs().put_log_events(**stream, logEvents=lines[start : start + _MAX_LINES])
        self._waiting.clear()
