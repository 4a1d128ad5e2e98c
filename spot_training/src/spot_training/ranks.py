"""The interface to the processes (ranks) of one training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol


class Ranks(Protocol):
    """The ranks of a training; each framework with several processes has an adapter."""

    @property
    def rank(self) -> int:
        """The rank of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """The world size."""
        ...

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return their texts by rank, the same on all ranks (all-gather)."""
        ...


class _Alone:
    """One process."""

    rank: Final = 0
    size: Final = 1

    def gather(self, text: str) -> Sequence[str]:
        return [text]


ALONE: Final[Ranks] = _Alone()
"""A training of one process."""
