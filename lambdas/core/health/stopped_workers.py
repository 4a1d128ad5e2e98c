"""Workers that take no requests, by what their reports say is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from contracts import names
from contracts.registry.worker_report import WorkerReport

*_NAMED, _UNNAMED = names.STOP_REASONS
_WORDS: Final = tuple(_NAMED)
"""RabbitMQ's words are "low on memory", "low on disk" and "low on memory & disk" (rabbit_reader), those of
`spot_work` without a connection "no connection"."""


def reason_of(text: str) -> str:
    """Return the value of the dimension ``reason`` for a worker's words."""
    cause = text.rpartition(":")[2]
    return next((word for word in _WORDS if word in cause), _UNNAMED)


def count(reports: Iterable[WorkerReport]) -> dict[str, int]:
    """Return the number of stopped workers by reason."""
    return dict(Counter(reason_of(report.stopped) for report in reports if report.stopped))
