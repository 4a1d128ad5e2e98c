"""Formats numbers and times for the terminal, the report page and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

CAUSES: Final[Mapping[Literal["notice", "loss", "hand-over"], str]] = {
    "notice": "announced",
    "loss": "without notice",
    "hand-over": "handed over",
}
"""Why an instance ended, as displayed."""
OUTLINE: Final = "### What will happen"
"""Heading of what a stack does entry by entry, at the end of a forecast in Markdown."""


def percent(fraction: float, digits: int = 1) -> str:
    """Return ``fraction`` as a percentage. A value below 1 is never rounded up to 100 %."""
    value = round(100 * fraction, digits)
    if fraction < 1 and value >= 100:
        value = 100 - 10.0**-digits
    return f"{value:.{digits}f}%"


def number(value: float) -> str:
    """Return a number with thousands separators and no unnecessary decimals."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return ``count`` followed by the noun in its singular or plural form."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def duration(minutes: float) -> str:
    """Return a duration in its two largest units."""
    days, rest = divmod(round(minutes), 24 * 60)
    hours, minute = divmod(rest, 60)
    if days:
        return f"{counted(days, 'day')} {hours} h" if hours else counted(days, "day")
    if hours:
        return f"{hours} h {minute} min" if minute else f"{hours} h"
    return f"{minute} min"


def span(seconds: float) -> str:
    """Return a duration as ``M:SS``, or ``H:MM:SS`` from one hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{rest:02d}" if hours else f"{minute}:{rest:02d}"


def clock(at: float) -> str:
    """Return epoch second ``at`` as a UTC date and time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
