"""What a demo plays by default: simulated hours, and the share of losses that are announced."""

from __future__ import annotations

from typing import Final

HOURS: Final = 48.0
LOAD_HOURS: Final = 24.0
NOTICE: Final = 0.9
SHARED_HOURS: Final = 10.0
"""Of a shared host, whose moves are played by the second."""
SERVICE_HOURS: Final = 1.25
SERVICE_NOTICE: Final = 0.6
"""Of the losses so many are announced: both kinds are to be seen in a short time."""
