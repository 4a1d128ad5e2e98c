"""Parsing of a date and time in a stack file."""

from __future__ import annotations

from datetime import datetime


def parse_date_time(text: str) -> datetime:
    """Return an ISO 8601 date and time with a time zone; raise ``ValueError`` if it is none."""
    try:
        date_time = datetime.fromisoformat(text)
    except ValueError:
        date_time = None
    if date_time is None or date_time.tzinfo is None or date_time.timestamp() <= 0:
        raise ValueError(
            f"{text!r}, allowed: a date and time with a time zone, such as '2027-03-01T18:00:00+01:00'"
        )
    return date_time
