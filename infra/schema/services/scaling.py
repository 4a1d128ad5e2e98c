"""Settings of ``services[].scaling``: scaling of a service by its load."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field, ValidationInfo, field_validator

from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from infra.schema.base import FROM_TEXT, Model, each_once
from infra.schema.services.request_log import RequestLog

Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: Final[tuple[Day, ...]] = get_args(Day)


class ScalingFloor(Model):
    """A minimum target between two times of day, on some days of the week."""

    min: Annotated[int, Field(ge=1)]
    """Minimum target during this time, in ``capacity.unit``."""
    begin: Annotated[str, Field(alias="from", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
    """Start, as a time of day (UTC)."""
    end: Annotated[str, Field(alias="to", pattern=r"^(([01]\d|2[0-3]):[0-5]\d|24:00)$")]
    """End, as a later time of day (UTC), up to ``24:00``. A floor over midnight is two floors."""
    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    """Days of the week. Default: all."""

    @property
    def contract(self) -> Floor:
        """The floor in the format of the scaler."""
        days = frozenset(map(DAYS.index, self.days))
        return Floor(self.min, _minute(self.begin), _minute(self.end), days)

    @field_validator("end")
    @classmethod
    def _after_begin(cls, end: str, info: ValidationInfo) -> str:
        begin = info.data.get("begin")
        if begin is not None and end <= begin:
            raise ValueError(f"must be later than {begin}, not {end}; use two floors over midnight")
        return end

    _each_once = field_validator("days")(each_once)


class Scaling(Model):
    """Scaling of the target by the load, from ``min`` to what ``capacity.max`` allows."""

    source: Literal["queue", "log", "http"] = "queue"
    """What the load is read from: the service's queue, the log of requests of a service without one, or the
    proxies of a service with ``http``; requests in a queue that it has, too, do not count then."""
    log: RequestLog | None = None
    """Log of requests, with ``source: log``."""
    wait_seconds: Annotated[int, Field(ge=1, le=3600)] = settings.WAIT_SECONDS
    """99th percentile of the time until a worker begins with a request, in seconds. A preview says what can
    be held if a burst allows no shorter wait."""
    headroom: Annotated[float, Field(ge=0, le=settings.MAX_HEADROOM), FROM_TEXT] = 0.0
    """Load beyond the present one that the workers hold without new instances, as a share of it: 2 holds
    three times the load. Costs as many workers more."""
    min: Annotated[int, Field(ge=0)] = settings.MINIMUM
    """Minimum target, in ``capacity.unit``. 0: a service without requests has no worker. At least 1 if
    requests are logged when they end."""
    floors: Annotated[tuple[ScalingFloor, ...], Field(max_length=10)] = ()
    """Higher minimum targets at some times of the week."""
    dry_run: bool = False
    """Whether the scaler only logs its decisions; the target is then ``capacity.target``."""

    @property
    def highest_floor(self) -> int:
        """Highest of all minimum targets."""
        return max(self.min, *(floor.min for floor in self.floors), 0)

    def contract(self, max_target: int, per_slot: int) -> ScalingSettings:
        """Return the settings in the format of the scaler.

        Args:
            max_target: maximum target of the group.
            per_slot: workers in one unit of the target.
        """
        floors = tuple(floor.contract for floor in self.floors)
        log = None if self.log is None else self.log.contract
        return ScalingSettings(
            self.min, max_target, per_slot, self.wait_seconds, floors, self.dry_run, log, self.headroom
        )

    @field_validator("log")
    @classmethod
    def _of_the_source(cls, log: RequestLog | None, info: ValidationInfo) -> RequestLog | None:
        if "source" in info.data and (log is not None) != (info.data["source"] == "log"):
            raise ValueError(
                "is required with source 'log'"
                if log is None
                else f"needs source 'log', not {info.data['source']!r}; remove one of them"
            )
        return log

    @field_validator("min")
    @classmethod
    def _wakes(cls, minimum: int, info: ValidationInfo) -> int:
        log: RequestLog | None = info.data.get("log")
        if minimum == 0 and log is not None and log.contract.counts_ended:
            raise ValueError(
                "must be at least 1, not 0: a request is logged when it ends, and without a worker "
                "none ends. Or set log.secondsPattern"
            )
        return minimum


def _minute(time: str) -> int:
    hours, minutes = time.split(":")
    return 60 * int(hours) + int(minutes)
