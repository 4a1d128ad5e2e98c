"""Report of a service's worker, sent with its heartbeat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

from contracts.registry.batches import MAX_ROWS, BatchRow
from contracts.stored import FieldMark, Stored, stored

MAX_VERSION_LENGTH: Final = 100
"""Characters of a version; an image's digest has 71."""
MAX_STOPPED_LENGTH: Final = 200
"""Characters of the reason for which no requests are taken."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Report of a worker, as of its last heartbeat.

    Attributes:
        version: Version of its release: an image's digest, or a hash of the command.
        gpu: UUID of its GPU, empty without one.
        reported_at: Epoch seconds of the worker's last report of ``done`` and ``failed``; 0 without any.
        done: Requests completed since the worker's start, including failed ones.
        failed: Requests that ended with an error.
        rate: Requests per second over the last minutes.
        busy: Share of the last minutes in which the worker processed a request; ``None`` if not reported.
        gpu_use: Percent of the last minute in which its GPU was busy; ``None`` if unknown.
        xid: Last Xid error of the GPU, since the start of the agent's unit, that requires at least a reset;
            0 for none.
        starts: Starts of the worker since the start of the agent's unit.
        batches: Batches of the last minutes by size, smallest first; ``None`` if not reported.
        batch_size: Largest batch that the worker runs; ``None`` if not reported.
        refused: Requests per second over the last minutes that were not run because they could not meet their
            deadline; not in ``done``. ``None`` if not reported.
        failed_rate: Requests per second over the last minutes that ended with an error; ``None`` if unknown.
        stopped: Why it takes no requests at present, in the worker's words; empty: it takes them.
    """

    version: str
    gpu: Annotated[str, FieldMark.REQUIRED] = ""
    reported_at: Annotated[float, FieldMark.REQUIRED, Stored("at")] = 0.0
    done: Annotated[int, FieldMark.REQUIRED] = 0
    failed: Annotated[int, FieldMark.REQUIRED] = 0
    rate: Annotated[float, FieldMark.REQUIRED] = 0.0
    busy: float | None = None
    gpu_use: float | None = None
    xid: Annotated[int, FieldMark.REQUIRED] = 0
    starts: Annotated[int, FieldMark.REQUIRED] = 1
    batches: tuple[BatchRow, ...] | None = None
    batch_size: int | None = None
    refused: float | None = None
    stopped: str = ""
    failed_rate: float | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        if len(self.version) > MAX_VERSION_LENGTH or len(self.gpu) > MAX_VERSION_LENGTH:
            raise ValueError(f"version and gpu must have at most {MAX_VERSION_LENGTH} characters")
        if len(self.stopped) > MAX_STOPPED_LENGTH:
            raise ValueError(f"stopped must have at most {MAX_STOPPED_LENGTH} characters")
        numbers = (self.reported_at, self.rate, self.gpu_use or 0.0, self.busy or 0.0, self.refused or 0.0)
        if not all(math.isfinite(number) and number >= 0 for number in (*numbers, self.failed_rate or 0.0)):
            raise ValueError("times, rates and shares must be finite and 0 or more")
        if self.busy is not None and self.busy > 1:
            raise ValueError(f"busy must be at most 1, not {self.busy}")
        if not 0 <= self.failed <= self.done or self.xid < 0 or self.starts < 0:
            raise ValueError(
                f"failed must be from 0 to done, and xid and starts 0 or more, not {self.failed} of "
                f"{self.done}, {self.xid} and {self.starts}"
            )
        if len(self.batches or ()) > MAX_ROWS or (self.batch_size or 1) < 1:
            raise ValueError(
                f"batches must have at most {MAX_ROWS} rows, and batch_size must be at least 1, "
                f"not {len(self.batches or ())} and {self.batch_size}"
            )
