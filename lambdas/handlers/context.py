"""Lambda's context, as far as handlers read it."""

from __future__ import annotations

from typing import Protocol


class LambdaContext(Protocol):
    """What a handler is told of its invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long this invocation may still take."""
        ...
