"""Structured logs: one JSON object a line on standard error, for journald and the CloudWatch agent."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

LOGGER = logging.getLogger("gpu-spot")


class JsonFormatter(logging.Formatter):
    """Formats ``time``, ``level``, ``event`` and the caller's fields as JSON."""

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
        return json.dumps(line, default=str)


def configure(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send the agent's log to ``stream`` (default: standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    LOGGER.handlers = [handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False


def info(event: str, **fields: object) -> None:
    """Log a completed action."""
    LOGGER.info(event, extra={"fields": fields})


def warning(event: str, **fields: object) -> None:
    """Log a problem that the agent handles."""
    LOGGER.warning(event, extra={"fields": fields})


def error(event: str, *, exc_info: bool = False, **fields: object) -> None:
    """Log a problem that needs attention."""
    LOGGER.error(event, extra={"fields": fields}, exc_info=exc_info)
