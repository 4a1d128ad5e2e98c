"""A service's ``scaling`` parameter, written by Pulumi and read by the scaler."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from contracts import codec
from contracts.stored import FieldMark, Stored, stored

WAIT_SECONDS: Final = 60
MINIMUM: Final = 1
MAX_HEADROOM: Final = 4.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Floor:
    """Minimum workers in a time window on given days: minutes after midnight UTC; Monday is day 0."""

    workers: int
    start: int
    end: int
    days: frozenset[int] = frozenset(range(7))

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for an invalid time window, day or number."""
        if not 0 <= self.start < self.end <= 1440 or self.workers < 0 or not self.days <= set(range(7)):
            raise ValueError(
                f"floor of {self.workers} from minute {self.start} to {self.end} is not a time of a day"
            )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of scaling in workers; ``wait_seconds`` is the maximum p99 wait of a request for a worker.

    With ``minimum`` 0, a service without requests has no worker. ``headroom`` is the load beyond the present
    one that the workers hold, as a share of it.
    """

    wait_seconds: float
    minimum: int
    maximum: int
    floors: tuple[Floor, ...] = ()
    headroom: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for invalid bounds."""
        if not 0 <= self.headroom <= MAX_HEADROOM:
            raise ValueError(f"headroom must be from 0 to {MAX_HEADROOM:g}, not {self.headroom:g}")
        if not 1 <= self.wait_seconds <= 3600:
            raise ValueError(f"wait_seconds must be from 1 to 3600, not {self.wait_seconds:g}")
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(f"minimum must be from 0 to maximum, not {self.minimum} of {self.maximum}")

    def floor(self, now: float) -> int:
        """Return the minimum target at this time."""
        day, minute = (int(now // 86400) + 3) % 7, int(now % 86400 // 60)  # the epoch began on a Thursday
        floors = (f.workers for f in self.floors if day in f.days and f.start <= minute < f.end)
        return min(self.maximum, max(self.minimum, *floors, 0))


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class RequestLogSettings:
    """How the metrics of a service's request log count.

    Attributes:
        seconds_per_request: the stated work of a request; None if a metric has the seconds.
        unit_seconds: seconds in one unit of that metric.
        counts_ended: whether a request is counted at its end.
    """

    seconds_per_request: float | None = None
    unit_seconds: float = 1.0
    counts_ended: bool = False

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible seconds."""
        if not (0 < (self.seconds_per_request or 1.0) < 1e6 and 0 < self.unit_seconds <= 1):
            raise ValueError(
                f"a request cannot take {self.seconds_per_request} units of {self.unit_seconds} s"
            )


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Settings of the scaler for one service; ``minimum``, ``maximum`` and ``floors`` are in slots.

    ``per_slot`` is the number of workers per slot; ``log`` is None if the service scales by its queue. With
    ``dry_run``, the target is only reported, not set.
    """

    minimum: Annotated[int, Stored("min")]
    maximum: Annotated[int, Stored("max")]
    per_slot: int
    wait_seconds: Annotated[float, FieldMark.REQUIRED] = WAIT_SECONDS
    floors: Annotated[tuple[Floor, ...], FieldMark.REQUIRED] = ()
    dry_run: Annotated[bool, FieldMark.REQUIRED] = False
    log: RequestLogSettings | None = None
    headroom: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for invalid bounds."""
        if self.per_slot < 1:
            raise ValueError(f"a slot must have at least 1 worker, not {self.per_slot}")
        _ = self.bounds

    @property
    def bounds(self) -> Bounds:
        """The bounds in workers."""
        per_slot = self.per_slot
        floors = tuple(Floor(f.workers * per_slot, f.start, f.end, f.days) for f in self.floors)
        return Bounds(
            self.wait_seconds, self.minimum * per_slot, self.maximum * per_slot, floors, self.headroom
        )

    def slots(self, workers: int) -> int:
        """Return the slots that hold ``workers`` workers, rounded up."""
        return -(-workers // self.per_slot)


def dumps(settings: ScalingSettings) -> str:
    """Serialize the parameter's value."""
    return json.dumps(codec.dump(settings))


def parse(text: str) -> ScalingSettings:
    """Parse the parameter's value; raise `ContractError` if it is invalid."""
    return codec.parse_text(ScalingSettings, text)
