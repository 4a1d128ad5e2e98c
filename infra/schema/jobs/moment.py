"""A date and time in a stack file."""

from __future__ import annotations

from datetime import datetime


def moment(text: str) -> datetime:
    """Return an ISO 8601 date-time that has a zone; raise ``ValueError`` for all else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.timestamp() <= 0:
        raise ValueError(
            f"{text!r}, allowed: a date and time with its zone, such as '2027-03-01T18:00:00+01:00'"
        )
    return found
