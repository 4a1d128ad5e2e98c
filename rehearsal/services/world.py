"""The script of a rehearsal with real workers: closures of zones, the office, the client's load."""

from __future__ import annotations

from typing import Final

from market.rules import TICK_SECONDS
from market.supply.trace import PoolTrace

PACE: Final = 60.0
"""Simulated seconds for each real second."""
HOURS: Final = 1.25
WARM_UP_TICKS: Final = 10
"""Ticks before the client begins to send."""
NOTICE: Final = 0.6
"""Share of interruptions with a notice; short runs should show both kinds."""
RATE: Final = 15.0
"""Requests for each real second."""
OVERFLOW_SECONDS: Final = 2.0
"""Real seconds in the queue after which a request also goes to the external API."""
API_CALLS_PER_HOUR: Final = 400
"""Maximum number of calls of the external API in a real hour."""
_FIRST, _EVERY, _CLOSED = 14, 18, 6
"""Minute of the first closing of a zone, minutes between two closings, and minutes of each."""
_ALL_AT: Final = 1
"""Index of the closing at which all zones close: On-Demand replaces Spot."""
_OFFICE_CLOSED: Final = (29, 40)
"""Minutes between which the office's machine is switched off."""


def rotate_closures(zones: tuple[str, ...], hours: float) -> tuple[PoolTrace, ...]:
    """Return the scripted market: every 18 minutes a zone closes for 6, once all zones together."""
    names = sorted(zones)
    minutes = round(hours * 60)
    open_ = {name: [1] * minutes for name in names}
    for number, at in enumerate(range(_FIRST, minutes, _EVERY)):
        closed = names if number == _ALL_AT else [names[number % len(names)]]
        for name in closed:
            for minute in range(at, min(at + _CLOSED, minutes)):
                open_[name][minute] = 0
    return tuple(PoolTrace(name, TICK_SECONDS, tuple(open_[name])) for name in names)


def office_is_open(tick: int) -> bool:
    """Return whether the office's machine is switched on."""
    closes, opens = _OFFICE_CLOSED
    return not closes <= tick < opens
