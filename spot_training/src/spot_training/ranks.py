"""The processes of one training, by the one thing that checkpoints ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol


class Ranks(Protocol):
    """All processes (ranks) of a training; an adapter for each framework that has ranks."""

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return each one's text, by rank, the same at every rank."""
        ...


class _Alone:
    """One process."""

    rank: Final = 0
    size: Final = 1

    def gather(self, text: str) -> Sequence[str]:
        return [text]


ALONE: Final[Ranks] = _Alone()
"""A training of one process."""
