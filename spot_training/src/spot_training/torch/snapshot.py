"""The position of a ``Loop`` and a copy of its state, between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spot_training.errors import SaveError
from spot_training.retention.rules import Keep


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
