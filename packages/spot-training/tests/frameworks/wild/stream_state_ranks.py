"""Two ranks of a stream with a state that outlasts an epoch, with accumulation."""

from __future__ import annotations

from frameworks.wild.stream_state import main

__all__ = ["main"]

RANKS = 2
