"""Metrics in CloudWatch's embedded metric format (EMF), sent to the CloudWatch agent over TCP.

CloudWatch extracts only the metrics named in ``_aws``: instance, UUID and Xid code are fields for Logs
Insights without custom metrics of their own. This process needs no AWS client and no credentials.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contracts.names import INSTANCE_NAMESPACE, is_series
from userdata.agent.machine import log

# The maximum of EMF for one metric in one line.
MAX_VALUES: Final = 100


@dataclass(frozen=True)
class Metric:
    """A metric with its values since the last line."""

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
    """Return one EMF line; ``dimensions`` become one dimension set, ``properties`` plain fields."""
    definitions = [{"Name": m.name, "Unit": m.unit} for m in metrics if is_series(m.name, m.values)]
    directive = {"Namespace": INSTANCE_NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": definitions}
    head = {
        "Timestamp": int(wall * 1000),
        "LogGroupName": log_group,
        "LogStreamName": stream,
        "CloudWatchMetrics": [directive] if definitions else [],
    }
    values = {m.name: list(m.values[-MAX_VALUES:]) if len(m.values) > 1 else m.values[0] for m in metrics}
    return json.dumps({"_aws": head, **dimensions, **values, **properties}, separators=(",", ":"))


class Sink:
    """Sends lines to the CloudWatch agent; buffers the newest ``max_lines`` while it is unreachable."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", max_lines: int = 500, timeout: float = 2.0
    ) -> None:
        self._address = (host, port)
        self._timeout = timeout
        self._lines: deque[str] = deque(maxlen=max_lines)
        self.dropped = 0
        self._away = False

    def put(self, text: str) -> None:
        """Add a line; if the buffer is full the oldest is dropped."""
        self.dropped += len(self._lines) == self._lines.maxlen
        self._lines.append(text)

    def flush(self) -> bool:
        """Send the buffered lines; return whether all were sent. Lines of a failed send are sent again."""
        if not self._lines:
            return True
        waiting = list(self._lines)
        try:
            with socket.create_connection(self._address, self._timeout) as connection:
                connection.sendall("".join(f"{text}\n" for text in waiting).encode())
        except OSError as error:
            if not self._away:
                log.warning("CloudWatch agent unreachable", error=str(error), buffered=len(waiting))
            self._away = True
            return False
        if self._away:
            log.info("CloudWatch agent reachable again", sent=len(waiting), dropped=self.dropped)
        self._away = False
        for _ in range(min(len(waiting), len(self._lines))):  # others may have been added meanwhile
            self._lines.popleft()
        return True
