"""The part of Lambda's context object that the handlers use."""

from __future__ import annotations

from typing import Protocol


class LambdaContext(Protocol):
    """The context object of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the invocation times out."""
        ...
