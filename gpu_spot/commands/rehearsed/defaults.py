"""Defaults of ``gpu-spot demo``: simulated hours, and the share of announced interruptions."""

from __future__ import annotations

from typing import Final

HOURS: Final = 48.0
LOAD_HOURS: Final = 24.0
HTTP_HOURS: Final = 1 / 60
"""Hours with ``--http``, in real time."""
NOTICE_SHARE: Final = 0.9
SHARED_HOURS: Final = 10.0
"""Hours for a shared host, whose moves are simulated in steps of a second."""
SERVICE_HOURS: Final = 1.25
SERVICE_NOTICE_SHARE: Final = 0.6
"""Share of announced interruptions with ``--service``, so that a short run shows both kinds."""
