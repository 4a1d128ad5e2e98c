"""Shipping of simulated agents' log lines to CloudWatch Logs, as the CloudWatch agent does.

On AWS lines have rsyslog's prefix and arrive some seconds later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from userdata.agent.machine import log

_STREAM: Final = "units"
_MAX_LINES: Final = 500
"""Maximum lines of a call; AWS allows 10,000 and 1 MB. Source: API reference, PutLogEvents."""


class Shipper(logging.Handler):
    """Collects the log lines of the running node; ``ship`` sends them.

    ``speaker`` returns the id of the instance whose code runs, None if none does; ``logs`` returns the
    CloudWatch Logs client, ``now`` the simulated time.
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
        """Register the stack and group of an instance."""
        self._groups[instance] = f"/gpu-spot/{stack}/instances/{group}"

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a line of a registered instance; others are dropped."""
        instance = self._speaker()
        if instance in self._groups:
            line = {"timestamp": round(1000 * self._now()), "message": self.format(record)}
            self._waiting.setdefault(instance, []).append(line)

    def ship(self) -> None:
        """Send all collected lines."""
        for instance, lines in self._waiting.items():
            stream = {"logGroupName": self._groups[instance], "logStreamName": f"{instance}/{_STREAM}"}
            if instance not in self._streams:
                self._streams.add(instance)
                self._logs().create_log_stream(**stream)
            for start in range(0, len(lines), _MAX_LINES):
                self._logs().put_log_events(**stream, logEvents=lines[start : start + _MAX_LINES])
        self._waiting.clear()
