"""Judges by heartbeats which processes are lost, by this observer's clock alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HEARTBEAT_SECONDS: Final = 1.0
"""Time between two heartbeats of a node."""
LOST_SECONDS: Final = 8.0
"""A node without a new heartbeat for so long is lost."""
_MAX_GAP_SECONDS: Final = 3.0
"""An observer that did not look for so long was itself stopped, and starts again."""


class HeartbeatObserver:
    """Remembers since when each heartbeat has not changed."""

    def __init__(self) -> None:
        self._unchanged: dict[str, tuple[str, float]] = {}
        self._last_at: float | None = None

    def lost(self, heartbeats: Mapping[str, str], now: float) -> list[str]:
        """Return the tokens that are lost; ``heartbeats``: the newest by token; ``now``: monotonic."""
        if self._last_at is None or now - self._last_at > _MAX_GAP_SECONDS:
            self._unchanged = {}
        self._last_at = now
        self._unchanged = {
            token: before
            if (before := self._unchanged.get(token)) is not None and before[0] == heartbeat
            else (heartbeat, now)
            for token, heartbeat in heartbeats.items()
        }
        return [token for token, (_, since) in self._unchanged.items() if now - since > LOST_SECONDS]
