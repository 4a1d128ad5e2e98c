"""A service's ``scaling`` parameter: the program writes it, the scaler reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from contracts import codec
from contracts.stored import FieldMark, Stored, stored

WAIT_SECONDS: Final = 60
MINIMUM: Final = 1


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Floor:
    """At least ``workers`` between two times of some days, in minutes after midnight UTC; Monday is 0."""

    workers: int
    begin: int
    end: int
    days: frozenset[int] = frozenset(range(7))

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a time that no day has."""
        if not 0 <= self.begin < self.end <= 1440 or self.workers < 0 or not self.days <= set(range(7)):
            raise ValueError(
                f"floor of {self.workers} from minute {self.begin} to {self.end} is no time of a day"
            )


@dataclass(frozen=True, slots=True)
class Bounds:
    """What people allow: ``wait_seconds`` is what one request in a hundred may wait for a worker.

    ``minimum`` 0 allows a service that nobody asks anything to have no worker.
    """

    wait_seconds: float
    minimum: int
    maximum: int
    floors: tuple[Floor, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for bounds that leave no room."""
        if not 1 <= self.wait_seconds <= 3600:
            raise ValueError(f"wait_seconds is {self.wait_seconds:g}, 1 to 3600 is allowed")
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(f"minimum {self.minimum}, maximum {self.maximum}: 0 ≤ minimum ≤ maximum ≥ 1")

    def floor(self, now: float) -> int:
        """Return the least target at this time."""
        day, minute = (int(now // 86400) + 3) % 7, int(now % 86400 // 60)  # the epoch began on a Thursday
        due = (f.workers for f in self.floors if day in f.days and f.begin <= minute < f.end)
        return min(self.maximum, max(self.minimum, *due, 0))


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """What people may set. ``minimum``, ``maximum`` and ``floors`` count as the group's target does: slots.

    ``per_slot`` are the workers in a slot. With ``dry_run`` is only told what the target would be.
    """

    minimum: Annotated[int, Stored("min")]
    maximum: Annotated[int, Stored("max")]
    per_slot: int
    wait_seconds: Annotated[float, FieldMark.REQUIRED] = WAIT_SECONDS
    floors: Annotated[tuple[Floor, ...], FieldMark.REQUIRED] = ()
    dry_run: Annotated[bool, FieldMark.REQUIRED] = False

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for bounds that leave no room."""
        if self.per_slot < 1:
            raise ValueError(f"{self.per_slot} workers in a slot, at least 1 is needed")
        _ = self.bounds

    @property
    def bounds(self) -> Bounds:
        """What is allowed, in workers."""
        each = self.per_slot
        floors = tuple(Floor(f.workers * each, f.begin, f.end, f.days) for f in self.floors)
        return Bounds(self.wait_seconds, self.minimum * each, self.maximum * each, floors)

    def slots(self, workers: int) -> int:
        """Return in how many slots so many workers have their place."""
        return -(-workers // self.per_slot)


def dumps(settings: ScalingSettings) -> str:
    """Return the parameter's text."""
    return json.dumps(codec.dump(settings))


def parse(text: str) -> ScalingSettings:
    """Read the parameter's text; raise `ContractError` for what the program does not write."""
    return codec.parse_text(ScalingSettings, text, "settings of scaling make no sense")
