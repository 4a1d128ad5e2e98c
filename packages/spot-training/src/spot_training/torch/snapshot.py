"""A position and a copy of a training's state, between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spot_training.errors import SaveError, one_line
from spot_training.retention.rules import Keep
from spot_training.torch.state import UnsupportedStateError

PARTS_FILE: Final = "parts.pt"
"""The state of the parts if it is the same at every rank, written by rank 0; else each has ``SHARD_FILE``."""


@dataclass
class LoopPosition:
    """The position between two steps: total batches, the epoch, its batches and samples.

    Stored in the manifest: ``meta["place"]``.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    samples: int = 0
    """Samples of all ranks together; 0 if the loader has its own state."""


@dataclass(frozen=True)
class StateCopy:
    """A copy of the state between two steps."""

    step: int
    meta: Mapping[str, Any]
    files: Mapping[str, Any]
    error: SaveError | None
    """Why it cannot be written."""
    seconds: float
    """How long it took."""
    keep: Keep = field(default_factory=Keep)
    """Why its checkpoint stays beside the newest ones."""


def copy_state(
    step: int, meta: Mapping[str, Any], copy_files: Callable[[], Mapping[str, Any]], keep: Keep | None = None
) -> StateCopy:
    """Return a copy of the state; a state that cannot be copied fails the save, not the training.

    ``copy_files`` returns copies of what this rank saves, by file name.
    """
    started, files = time.monotonic(), dict[str, Any]()
    error: SaveError | None = None
    try:
        files = dict(copy_files())
    except SaveError as reason:
        error = reason
    except (TypeError, ValueError, AttributeError) as reason:
        error = UnsupportedStateError(f"the state cannot be copied: {one_line(reason)}")
    return StateCopy(step, meta, files, error, time.monotonic() - started, keep or Keep())
