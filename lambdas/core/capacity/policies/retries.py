"""When a policy that holds no Spot Instance requests one again, whatever it has learned.

What a group knows of its Spot pools it learned from its own instances. Without a Spot Instance it learns
nothing more, so no belief may keep it from trying. The times follow from the clock and the group's name
alone: no memory, true or false, can move them.
"""

from __future__ import annotations

import math
import zlib
from datetime import UTC, datetime
from typing import Final

from lambdas.core.capacity.history import LAUNCH_TIMEOUT_SECONDS
from lambdas.core.capacity.plan import RETRY_SECONDS

TRY_SECONDS: Final = LAUNCH_TIMEOUT_SECONDS + 60.0
"""Time for which one Spot slot is requested; at least two scheduled passes see it."""
PROVEN_SECONDS: Final = 6 * 3600.0
"""A pool that has provided Spot for so long needs no more cover, whatever its record."""


def current_try(group: str, now: float) -> tuple[bool, float]:
    """Return whether the group requests Spot now, and the time (epoch seconds) at which that changes."""
    offset = zlib.crc32(group.encode()) % int(RETRY_SECONDS)  # not all groups at once
    start = math.floor((now - offset) / RETRY_SECONDS) * RETRY_SECONDS + offset
    if now < start + TRY_SECONDS:
        return True, start + TRY_SECONDS
    return False, start + RETRY_SECONDS


def not_trying_until(time: float) -> str:
    """Return the part of a reason that says when Spot is requested again."""
    return f"not trying Spot until {datetime.fromtimestamp(time, UTC):%H:%M} UTC"
