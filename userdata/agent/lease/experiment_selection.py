"""Which experiment of a group an instance takes next: a pure function of how all of them stand.

Nobody hands them out. What is chosen here is taken by its lease, one conditional write; who comes second
looks again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Turn:
    """How an experiment stands: ``holder`` (empty: nobody) has its lease until ``until`` (epoch seconds).

    ``has_begun``: some instance has had it; ``has_ended``: it is done, or has failed for good.
    """

    has_begun: bool = False
    has_ended: bool = False
    has_failed: bool = False
    holder: str = ""
    until: float = 0.0

    def is_free(self, me: str, now: float) -> bool:
        """Tell whether instance ``me`` may take it: as the lease's own condition has it."""
        return not self.has_ended and (self.holder in ("", me) or self.until < int(now))


@dataclass(frozen=True, slots=True)
class Take:
    """Take the experiment of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class WaitForTurn:
    """All that have not ended, ``left`` of them, are with others, and one may come back."""

    left: int


@dataclass(frozen=True, slots=True)
class Finished:
    """All have ended; these have failed, sorted."""

    failed: tuple[str, ...]


NextTurn: TypeAlias = Take | WaitForTurn | Finished


def choose(turns: Mapping[str, Turn], me: str, now: float) -> NextTurn:
    """Return what instance ``me`` is to do at ``now`` (epoch seconds).

    Its own comes first: an agent that was started again goes on. Then those that have begun, whose
    checkpoints wait; then new ones. Among equals each instance has an order of its own, so that few ask for
    the same.
    """
    left = {name: turn for name, turn in turns.items() if not turn.has_ended}
    if not left:
        return Finished(tuple(sorted(name for name, turn in turns.items() if turn.has_failed)))
    free = [name for name, turn in left.items() if turn.is_free(me, now)]
    if not free:
        return WaitForTurn(len(left))

    def rank(name: str) -> tuple[bool, bool, bytes]:
        turn = left[name]
        return turn.holder != me, not turn.has_begun, hashlib.sha256(f"{me} {name}".encode()).digest()

    return Take(min(free, key=rank))
