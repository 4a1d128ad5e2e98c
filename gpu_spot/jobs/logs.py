"""What a job's instances said: its group's log group, followed line by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.jobs.reader import JobError

_LATE: Final = 30.0
"""CloudWatch Logs shows lines some seconds after their time, and those of two streams in no order."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that an instance wrote at ``at`` (epoch seconds); ``stream`` is ``boot`` or ``units``."""

    at: float
    instance: str
    stream: str
    text: str


class JobLog:
    """Reads the log group of one job's instances through CloudWatch Logs' client."""

    def __init__(self, logs: Any, stack: str, job: str) -> None:
        self._logs = logs
        self._group = f"/gpu-spot/{stack}/instances/{job}"
        self._told: dict[str, float] = {}

    def read(self, since: float) -> Iterator[LogLine]:
        """Yield the lines from ``since`` on (epoch seconds) that were not told yet, page by page.

        Raises:
            JobError: the log group is not there.
        """
        pages = self._logs.get_paginator("filter_log_events").paginate(
            logGroupName=self._group, startTime=max(0, int(since * 1000))
        )
        try:
            for page in pages:
                for event in page["events"]:
                    if event["eventId"] in self._told:
                        continue
                    at = event["timestamp"] / 1000
                    self._told[event["eventId"]] = at
                    instance, _, stream = event["logStreamName"].partition("/")
                    yield LogLine(at, instance, stream, said(event["message"]))
        except self._logs.exceptions.ResourceNotFoundException:
            raise JobError(f"log group {self._group}: there is none") from None

    def follow(self, since: float, wait: Callable[[], bool]) -> Iterator[LogLine]:
        """Yield lines as they come; ``wait`` waits until the next look and says whether there is one."""
        newest = since
        while True:
            for line in self.read(since):
                newest = max(newest, line.at)
                yield line
            since = max(since, newest - _LATE)
            self._told = {key: at for key, at in self._told.items() if at >= since}
            if not wait():
                return


def said(message: str) -> str:
    """Return a line as people read it: of the agent's own, which are JSON, the event and its fields."""
    _, brace, rest = message.rstrip().partition("{")
    try:
        line = json.loads(brace + rest) if brace else None
    except ValueError:
        line = None
    if not isinstance(line, dict) or "event" not in line:
        return message.rstrip()
    fields = {key: value for key, value in line.items() if key not in ("time", "level", "event", "_aws")}
    told = " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in fields.items()
    )
    level = "" if line.get("level") in (None, "info") else f"{line['level']}: "
    return f"{level}{line['event']} {told}".rstrip()
