"""Two ranks of a stream without a state, each in two workers of which one gets twice as much."""

from __future__ import annotations

from frameworks.wild.stream import main

__all__ = ["main"]

RANKS = 2
