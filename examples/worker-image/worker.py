"""A worker's skeleton: say ready when the model is loaded, finish what you have when told to stop."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

STOP = threading.Event()


def main() -> None:
    """Serve until SIGTERM, which comes drainSeconds before the instance is taken."""
    signal.signal(signal.SIGTERM, lambda number, frame: STOP.set())
    load_model()
    Path(os.environ["GPU_SPOT_READY"]).touch()  # with "saysReady": true the slot counts from here on
    while not STOP.is_set():
        serve_one()


def load_model() -> None:
    """Load yours here."""


def serve_one() -> None:
    """Take one message from your queue and answer it; this one waits for nothing."""
    STOP.wait(1.0)


if __name__ == "__main__":
    main()
