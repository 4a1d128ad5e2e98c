"""Structured logs: one JSON object a line on standard error, for journald and the CloudWatch agent."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

LOGGER = logging.getLogger("gpu-spot")
_PRIORITIES: Final = {logging.ERROR: "<3>", logging.WARNING: "<4>", logging.INFO: "<6>"}
"""The journal reads and removes them. Source: sd-daemon(3), systemd.exec(5) ``SyslogLevelPrefix=``."""


class JsonFormatter(logging.Formatter):
    """Formats ``time``, ``level``, ``event`` and the caller's fields as JSON, with a priority if wanted."""

    def __init__(self, *, has_priority: bool = False) -> None:
        super().__init__()
        self._has_priority = has_priority

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        prefix = _PRIORITIES.get(record.levelno, "") if self._has_priority else ""
        return prefix + json.dumps(line, default=str)


def configure(stream: TextIO | None = None, level: int = logging.INFO, identifier: str = "gpu-spot") -> None:
    """Send the agent's log to ``stream`` (default: standard error) as JSON lines.

    If that is the journal's, they have priorities, and a connection of their own under ``identifier``.
    """
    stream = stream or sys.stderr
    is_journal = _is_journal(stream)
    handler = logging.StreamHandler((_own_stream(identifier) if is_journal else None) or stream)
    handler.setFormatter(JsonFormatter(has_priority=is_journal))
    LOGGER.handlers = [handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False


def _own_stream(identifier: str) -> TextIO | None:
    """Return a connection to the journal; None if it, or systemd's library, is not there.

    On the unit's connection the agent would wait behind what its workload writes, seconds in a flood.
    Source: sd_journal_stream_fd(3); 6 is ``LOG_INFO``, 1 that lines may have a priority.
    """
    import ctypes

    try:
        descriptor = ctypes.CDLL("libsystemd.so.0").sd_journal_stream_fd(identifier.encode(), 6, 1)
    except (OSError, AttributeError):
        return None
    return os.fdopen(descriptor, "w") if descriptor >= 0 else None


def _is_journal(stream: TextIO) -> bool:
    """Return whether a stream is the journal's. Source: systemd.exec(5), ``$JOURNAL_STREAM``."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def info(event: str, **fields: object) -> None:
    """Log a completed action."""
    LOGGER.info(event, extra={"fields": fields})


def warning(event: str, **fields: object) -> None:
    """Log a problem that the agent handles."""
    LOGGER.warning(event, extra={"fields": fields})


def error(event: str, *, exc_info: bool = False, **fields: object) -> None:
    """Log a problem that needs attention."""
    LOGGER.error(event, extra={"fields": fields}, exc_info=exc_info)
