"""Logs of a job's instances: reads and follows its CloudWatch log group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.jobs.reader import JobError

_DELIVERY_DELAY_SECONDS: Final = 30.0
"""CloudWatch Logs delivers lines some seconds late, and those of two streams unordered."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line of an instance at ``at`` (epoch seconds); ``stream`` is ``boot`` or ``units``."""

    at: float
    instance: str
    stream: str
    text: str


class JobLog:
    """Reads the log group of a job's instances."""

    def __init__(self, logs: Any, stack: str, job: str) -> None:
        self._logs = logs
        self._group = f"/gpu-spot/{stack}/instances/{job}"
        self._printed_events: dict[str, float] = {}

    def read(self, since: float) -> Iterator[LogLine]:
        """Yield the lines since ``since`` (epoch seconds) that were not yet yielded.

        Raises:
            JobError: the log group does not exist.
        """
        pages = self._logs.get_paginator("filter_log_events").paginate(
            logGroupName=self._group, startTime=max(0, int(since * 1000))
        )
        try:
            for page in pages:
                for event in page["events"]:
                    if event["eventId"] in self._printed_events:
                        continue
                    at = event["timestamp"] / 1000
                    self._printed_events[event["eventId"]] = at
                    instance, _, stream = event["logStreamName"].partition("/")
                    yield LogLine(at, instance, stream, format_message(event["message"]))
        except self._logs.exceptions.ResourceNotFoundException:
            raise JobError(f"log group {self._group} does not exist") from None

    def follow(self, since: float, wait: Callable[[], bool]) -> Iterator[LogLine]:
        """Yield lines as they arrive. ``wait`` sleeps until the next poll and returns whether to continue."""
        newest = since
        while True:
            for line in self.read(since):
                newest = max(newest, line.at)
                yield line
            since = max(since, newest - _DELIVERY_DELAY_SECONDS)
            self._printed_events = {key: at for key, at in self._printed_events.items() if at >= since}
            if not wait():
                return


def format_message(message: str) -> str:
    """Return a line in readable form: of the agent's JSON lines, the event and its fields."""
    _, brace, rest = message.rstrip().partition("{")
    try:
        line = json.loads(brace + rest) if brace else None
    except ValueError:
        line = None
    if not isinstance(line, dict) or "event" not in line:
        return message.rstrip()
    fields = {key: value for key, value in line.items() if key not in ("time", "level", "event", "_aws")}
    details = " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in fields.items()
    )
    level = "" if line.get("level") in (None, "info") else f"{line['level']}: "
    return f"{level}{line['event']} {details}".rstrip()
