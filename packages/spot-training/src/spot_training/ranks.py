"""The interface to the processes (ranks) of one training."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from spot_training import errors
from spot_training.errors import NoSpaceError, SaveError, SpotTrainingError, one_line
from spot_training.storage.calls import FULL_ERRNOS

T = TypeVar("T")


class Ranks(Protocol):
    """The ranks of a training; each framework with several processes has an adapter."""

    @property
    def rank(self) -> int:
        """The rank of this process, from 0."""

    @property
    def size(self) -> int:
        """The world size."""

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return their texts by rank, the same on all ranks (all-gather)."""


class _Alone:
    """One process."""

    rank: Final = 0
    size: Final = 1

    def gather(self, text: str) -> Sequence[str]:
        return [text]


ALONE: Final[Ranks] = _Alone()
"""A training of one process."""


class RankCalls:
    """Runs an action on one or all ranks; an error of one rank is raised on all of them."""

    def __init__(self, ranks: Ranks, location: str) -> None:
        """``location``: named in the errors."""
        self._ranks, self._location = ranks, location

    def on_first(self, action: Callable[[], T]) -> T:
        """Run an action on rank 0 and return its result (JSON), or raise its error, on all ranks."""
        result: T = self.on_all(action if self._ranks.rank == 0 else lambda: None)[0]
        return result

    def on_all(self, action: Callable[[], object]) -> list[Any]:
        """Run an action on all ranks; return all results (JSON), or raise the first error, on all ranks."""
        local_error: Exception | None = None
        try:
            outcome = {"value": action()}
        except Exception as error:
            local_error = error
            outcome = {"kind": _kind_of(error), "error": one_line(error)}
        outcomes = [json.loads(result) for result in self._ranks.gather(json.dumps(outcome))]
        is_of_storage = isinstance(local_error, (SpotTrainingError, OSError, RuntimeError))
        if local_error is not None and not is_of_storage:
            raise local_error  # a mistake in the script
        for rank, result in enumerate(outcomes):
            if "error" in result:
                text = f"rank {rank}: {result['error']}" if self._ranks.size > 1 else result["error"]
                message = text if self._location in text else f"{self._location}: {text}"
                raise getattr(errors, result["kind"], SaveError)(message) from None
        return [result["value"] for result in outcomes]


def _kind_of(error: Exception) -> str:
    """Return the name of the error type that all ranks raise for a rank's error."""
    if isinstance(error, OSError) and error.errno in FULL_ERRNOS:
        return NoSpaceError.__name__
    return type(error).__name__ if isinstance(error, SpotTrainingError) else SaveError.__name__
