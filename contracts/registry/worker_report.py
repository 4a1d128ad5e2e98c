"""What a service's worker tells of itself with a heartbeat, beside that it lives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

from contracts.stored import FieldMark, stored

MOST_VERSION: Final = 100
"""Characters of a version; an image's digest has 71."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Pulse:
    """A worker's own account, as of its last heartbeat.

    ``version`` says what runs: an image's digest, or a hash of the command. ``gpu`` is the UUID of its GPU,
    empty without one. ``at`` (epoch seconds) is when the worker last said how many requests it has ended
    since its start, ``done``, and how many of these ended with an error, ``failed``; 0 where it says nothing.
    ``rate`` are requests a second over the last minutes, ``busy`` the share of these in which it had any,
    None where it does not say. ``gpu_use`` is the share of the last minute in which
    its GPU was busy, in percent, None where nobody knows. ``xid`` is the last Xid of that GPU after which
    it needs a reset or worse, 0 for none; ``starts`` counts the worker's starts. Both begin with the agent's
    unit.
    """

    version: str
    gpu: Annotated[str, FieldMark.REQUIRED] = ""
    at: Annotated[float, FieldMark.REQUIRED] = 0.0
    done: Annotated[int, FieldMark.REQUIRED] = 0
    failed: Annotated[int, FieldMark.REQUIRED] = 0
    rate: Annotated[float, FieldMark.REQUIRED] = 0.0
    busy: float | None = None
    gpu_use: float | None = None
    xid: Annotated[int, FieldMark.REQUIRED] = 0
    starts: Annotated[int, FieldMark.REQUIRED] = 1

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what no worker can tell."""
        if len(self.version) > MOST_VERSION or len(self.gpu) > MOST_VERSION:
            raise ValueError(f"version and gpu have at most {MOST_VERSION} characters")
        numbers = (self.at, self.rate, self.gpu_use or 0.0, self.busy or 0.0)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError("times, rates and shares must be finite, 0 or more")
        if self.busy is not None and self.busy > 1:
            raise ValueError(f"busy for {self.busy} of the time, at most 1 is allowed")
        if not 0 <= self.failed <= self.done or self.xid < 0 or self.starts < 0:
            raise ValueError(f"{self.failed} of {self.done} failed, Xid {self.xid}, {self.starts} starts")
