"""Settings of ``training[].schedule``: when a job runs, and how often in a month."""

from __future__ import annotations

import calendar
import re
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, field_validator

from infra.schema.base import Model

_DURATION: Final = re.compile(r"P(?=.)(?:(\d{1,3})D)?(?:T(?=.)(?:(\d{1,3})H)?(?:(\d{1,4})M)?)?")
_RATE: Final = re.compile(r"rate\(([1-9]\d{0,4}) (minute|hour|day)(s?)\)")
_MINUTES: Final = {"minute": 1, "hour": 60, "day": 1440}
_MIN_MINUTES: Final = 15
_MONTH_DAYS: Final = 365 / 12
_MONTHS: Final = tuple(name.upper() for name in calendar.month_abbr[1:])
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: Final = (
    ("minutes", 0, 59, ()),
    ("hours", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 1, 7, _DAYS),
    ("year", 1970, 2199, ()),
)
_OTHER_DAYS: Final = {
    "day of the month": r"\?|L|LW|([1-9]|[12]\d|3[01])W",
    "day of the week": rf"\?|L|([1-7]|{'|'.join(_DAYS)})(L|#[1-5])",
}
"""Fields of a cron expression with their bounds and names, and days that are no number of a field.

Source: EventBridge Scheduler user guide, "Schedule types", cron-based schedules.
"""


def duration_seconds(text: str) -> float:
    """Return the seconds of an ISO 8601 duration; raise ``ValueError`` if it is none."""
    match = _DURATION.fullmatch(text)
    days, hours, minutes = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    seconds = timedelta(days=days, hours=hours, minutes=minutes).total_seconds()
    if not 600 <= seconds <= 31 * 86_400:
        raise ValueError(f"must be a duration from PT10M to P31D, such as PT6H or P1DT12H, not {text!r}")
    return seconds


Duration: TypeAlias = Annotated[str, AfterValidator(lambda text: text if duration_seconds(text) else "")]


class Schedule(Model):
    """The times at which a job runs, and what happens to a time at which it cannot."""

    at: Annotated[str, Field(max_length=256)] | None = None
    """Times as EventBridge Scheduler has them: ``cron(0 2 * * ? *)`` or ``rate(12 hours)``. Default: none;
    ``gpu-spot jobs run`` starts each run."""
    time_zone: Annotated[str, Field(max_length=50)] = "UTC"
    """Time zone of ``cron`` expressions, such as ``Europe/Berlin``."""
    overlap: Literal["skip", "wait"] = "skip"
    """What happens to a time during a run: ``skip`` starts none, ``wait`` starts the newest one when that
    run has ended, also a run by hand that was requested before."""
    missed: Literal["once", "skip"] = "once"
    """What happens to times that no controller could serve within 15 minutes, because it was paused or
    failed: ``once`` starts the newest, ``skip`` none."""
    keep_runs: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of runs whose checkpoints and artifacts are kept on the volume or file system, the current one
    included. Older ones are deleted when a run begins. Default: all."""

    @field_validator("at")
    @classmethod
    def _expression(cls, text: str | None) -> str | None:
        return text if text is None or runs_a_month(text) else None

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        if name == "UTC" or not available_timezones():  # without a database AWS judges it
            return name
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"must be a name of the IANA database such as Europe/Berlin, not {name!r}"
            ) from None
        return name

    @property
    def runs_a_month(self) -> float | None:
        """How often the job runs in an average month; None if only people start it."""
        return None if self.at is None else runs_a_month(self.at)


def runs_a_month(text: str) -> float:
    """Return how often an expression fires in an average month.

    Raises:
        ValueError: it is none of EventBridge Scheduler, or fires more often than a run can start.
    """
    if match := _RATE.fullmatch(text):
        count, unit, plural = int(match[1]), match[2], match[3]
        if (count > 1) != bool(plural):
            raise ValueError(f"must be rate(1 {unit}) or rate({max(2, count)} {unit}s), not {text!r}")
        period = count * _MINUTES[unit]
        if period < _MIN_MINUTES:
            raise ValueError(f"must leave at least {_MIN_MINUTES} minutes between runs, unlike {text!r}")
        return _MONTH_DAYS * 1440 / period
    fields = text[5:-1].split() if text.startswith("cron(") and text.endswith(")") else []
    if len(fields) != len(_FIELDS):
        raise ValueError(
            "must be cron(minutes hours day-of-month month day-of-week year), such as cron(0 2 * * ? *), or "
            f"rate(12 hours), not {text!r}"
        )
    minutes, hours, days, months, weekdays, _ = (
        _values(text, field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)
    )
    if (fields[2] == "?") == (fields[4] == "?"):
        raise ValueError(
            f"must have ? as either the day of the month or the day of the week, unlike {text!r}"
        )
    if any((later - minute) % 60 in range(1, _MIN_MINUTES) for minute in minutes for later in minutes):
        raise ValueError(f"must leave at least {_MIN_MINUTES} minutes between runs, unlike {text!r}")
    in_a_month = len(days) * _MONTH_DAYS / 31 if days else len(weekdays) * _MONTH_DAYS / 7
    return len(minutes) * len(hours) * max(1.0, in_a_month) * len(months) / 12


def _values(text: str, field: str, name: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    """Return the values of a field of a cron expression; empty for ``?``, ``L``, ``15W`` and ``6#3``."""
    if re.fullmatch(_OTHER_DAYS.get(name, ""), field):
        return frozenset()
    values: set[int] = set()
    for part in field.upper().split(","):
        for number, title in enumerate(names, low):
            part = part.replace(title, str(number))
        match = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/([1-9]\d*))?", part)
        first, last, step = (match[1], match[2], match[3]) if match else (None, None, None)
        start = low if first is None else int(first)
        end = high if first is None or (step and not last) else int(last or start)
        if match is None or not low <= start <= end <= high:
            allowed = f"{low} to {high}{' or ' + names[0] + ' to ' + names[-1] if names else ''}"
            raise ValueError(f"is {text!r}: {name} must be {allowed}, with , - * and /, not {field!r}")
        values.update(range(start, end + 1, int(step or 1)))
    return frozenset(values)
