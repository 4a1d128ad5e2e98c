"""A service's ``health`` parameter: the program writes it, the health checker reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from contracts.group.config import json_object

GRACE_SECONDS: Final = 900
STUCK_SECONDS: Final = 900
MOST_AT_ONCE: Final = 20
DIGEST_HOUR: Final = 7
NO_DIGEST: Final = -1


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """What people may set.

    An instance may take ``grace_seconds`` after its launch until its workers report, or twice the learned
    boot time if that is longer. A worker that finishes nothing for ``stuck_seconds`` while requests wait,
    or the others finish ten each, is stuck: longer than the longest request. Of all instances at most
    ``most_at_once`` percent, and one at least, are restarted or replaced at the same time, and twice as
    many in an hour. The daily message goes out at ``digest`` o'clock UTC, `NO_DIGEST` for none.
    """

    grace_seconds: int = GRACE_SECONDS
    stuck_seconds: int = STUCK_SECONDS
    most_at_once: int = MOST_AT_ONCE
    digest: int = DIGEST_HOUR


def dumps(settings: HealthSettings) -> str:
    """Return the parameter's text."""
    return json.dumps(
        {
            "graceSeconds": settings.grace_seconds,
            "stuckSeconds": settings.stuck_seconds,
            "mostAtOnce": settings.most_at_once,
            "digest": settings.digest,
        }
    )


def parse(text: str) -> HealthSettings:
    """Read the parameter's text; raise ``ValueError`` for what the program does not write."""
    raw = json_object(text)
    try:
        grace, stuck, most, digest = (
            int(raw[key]) for key in ("graceSeconds", "stuckSeconds", "mostAtOnce", "digest")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"health settings make no sense: {error!r}") from None
    if min(grace, stuck) < 0 or not 0 <= most <= 100 or not NO_DIGEST <= digest <= 23:
        raise ValueError(f"health settings out of range: {text[:200]}")
    return HealthSettings(grace, stuck, most, digest)
