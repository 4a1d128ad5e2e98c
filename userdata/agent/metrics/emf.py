"""Metrics as log lines in CloudWatch's embedded metric format, handed to the CloudWatch agent over TCP.

CloudWatch makes metrics only of what ``_aws`` names, so instance, UUID and Xid code stand in each line for
Logs Insights and cost no metric of their own. No AWS client and no credentials are needed in this process.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contracts.names import INSTANCE_NAMESPACE
from userdata.agent.machine import log

# The format takes 100 values for a metric in one line.
MOST_VALUES: Final = 100


@dataclass(frozen=True)
class Metric:
    """A metric with the values that were taken since the last line."""

    name: str
    unit: str
    values: tuple[float, ...]


def line(
    wall: float,
    log_group: str,
    stream: str,
    dimensions: Mapping[str, str],
    metrics: Sequence[Metric],
    properties: Mapping[str, Any],
) -> str:
    """Return one line; ``dimensions`` become one set, ``properties`` plain fields."""
    definitions = [{"Name": m.name, "Unit": m.unit} for m in metrics]
    directive = {"Namespace": INSTANCE_NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": definitions}
    head = {
        "Timestamp": int(wall * 1000),
        "LogGroupName": log_group,
        "LogStreamName": stream,
        "CloudWatchMetrics": [directive],
    }
    values = {m.name: list(m.values[-MOST_VALUES:]) if len(m.values) > 1 else m.values[0] for m in metrics}
    return json.dumps({"_aws": head, **dimensions, **values, **properties})


class Sink:
    """Sends lines to the CloudWatch agent; keeps the newest ``most`` while it is away."""

    def __init__(self, port: int, host: str = "127.0.0.1", most: int = 500, timeout: float = 2.0) -> None:
        self._address = (host, port)
        self._timeout = timeout
        self._lines: deque[str] = deque(maxlen=most)
        self.dropped = 0
        self._away = False

    def put(self, text: str) -> None:
        """Add a line; the oldest gives way when the buffer is full."""
        self.dropped += len(self._lines) == self._lines.maxlen
        self._lines.append(text)

    def flush(self) -> bool:
        """Send what is there; tell whether all went out. Lines whose sending failed are sent again."""
        if not self._lines:
            return True
        waiting = list(self._lines)
        try:
            with socket.create_connection(self._address, self._timeout) as connection:
                connection.sendall("".join(f"{text}\n" for text in waiting).encode())
        except OSError as error:
            if not self._away:
                log.warning("CloudWatch agent is away", error=str(error), kept=len(waiting))
            self._away = True
            return False
        if self._away:
            log.info("CloudWatch agent is back", sent=len(waiting), dropped=self.dropped)
        self._away = False
        self._lines.clear()
        return True
