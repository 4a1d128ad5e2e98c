"""Numbers and times as text: in the terminal, on the page, in the picture."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

CAUSES: Final[Mapping[Literal["notice", "loss", "hand-over"], str]] = {
    "notice": "announced",
    "loss": "without notice",
    "hand-over": "handed over",
}
"""Why an instance ended, in words."""


def percent(fraction: float, digits: int = 1) -> str:
    """Return ``fraction`` in per cent. What falls short of the whole is never rounded up to it."""
    value = round(100 * fraction, digits)
    if fraction < 1 and value >= 100:
        value = 100 - 10.0**-digits
    return f"{value:.{digits}f}%"


def number(value: float) -> str:
    """Return a number with thousands separators and no needless decimals."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``count`` with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration(minutes: float) -> str:
    """Return a length of time in its two largest units."""
    days, rest = divmod(round(minutes), 24 * 60)
    hours, minute = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minute} min" if minute else f"{hours} h"
    return f"{minute} min"


def span(seconds: float) -> str:
    """Return a length of time as minutes and seconds, from an hour on with hours."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{rest:02d}" if hours else f"{minute}:{rest:02d}"


def clock(at: float) -> str:
    """Return epoch second ``at`` as date and time (UTC)."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
