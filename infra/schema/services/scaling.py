"""The shape of ``services[].scaling``: how many workers a service has, by its load."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field, ValidationInfo, field_validator

from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from infra.schema.base import Model

Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: Final[tuple[Day, ...]] = get_args(Day)


class ScalingFloor(Model):
    """At least so many from one time of day to another, on some days of the week."""

    least: Annotated[int, Field(ge=1)]
    """At least so many, counted as ``capacity.target`` is."""
    begin: Annotated[str, Field(alias="from", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
    """Time of day, UTC."""
    end: Annotated[str, Field(alias="to", pattern=r"^(([01]\d|2[0-3]):[0-5]\d|24:00)$")]
    """A later one; over midnight: two floors."""
    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    """Of the week; left out, all."""

    @property
    def told(self) -> Floor:
        """What the scaler is told."""
        days = frozenset(map(DAYS.index, self.days))
        return Floor(self.least, _minute(self.begin), _minute(self.end), days)

    @field_validator("end")
    @classmethod
    def _after_its_begin(cls, end: str, info: ValidationInfo) -> str:
        begin = info.data.get("begin")
        if begin is not None and end <= begin:
            raise ValueError(f"{end} is not after {begin}, allowed: a later time (over midnight: two floors)")
        return end

    @field_validator("days")
    @classmethod
    def _each_once(cls, days: tuple[Day, ...]) -> tuple[Day, ...]:
        for day in days:
            if days.count(day) > 1:
                raise ValueError(f"{day!r} is listed twice, allowed: each day once")
        return days


class Scaling(Model):
    """The scaler alone moves the target, between ``min`` and what ``capacity.max`` leaves room for."""

    wait_seconds: Annotated[int, Field(ge=1, le=3600)] = settings.WAIT_SECONDS
    """One request in a hundred may wait for longer."""
    min: Annotated[int, Field(ge=0)] = settings.MINIMUM
    """The least, counted as ``capacity.target`` is. 0: a service that nobody asks anything has no worker."""
    floors: Annotated[tuple[ScalingFloor, ...], Field(max_length=10)] = ()
    """More than the least at some times."""
    dry_run: bool = False
    """Only say what would be done; ``capacity.target`` counts."""

    @property
    def highest_floor(self) -> int:
        """The most that is ever kept without any load."""
        return max(self.min, *(floor.least for floor in self.floors), 0)

    def told(self, most: int, per_slot: int) -> ScalingSettings:
        """Return what the scaler is told, with the most that the group may hold and the workers in a slot."""
        floors = tuple(floor.told for floor in self.floors)
        return ScalingSettings(self.min, most, per_slot, self.wait_seconds, floors, self.dry_run)


def _minute(time: str) -> int:
    hours, minutes = time.split(":")
    return 60 * int(hours) + int(minutes)
