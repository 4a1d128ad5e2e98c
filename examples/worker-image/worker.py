"""A worker template: reports readiness once the model is loaded, and drains on SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

STOP = threading.Event()


def main() -> None:
    """Serve until SIGTERM, which comes drainSeconds before the instance is terminated."""
    signal.signal(signal.SIGTERM, lambda number, frame: STOP.set())
    load_model()
    Path(os.environ["GPU_SPOT_READY"]).touch()  # with "reportsReadiness": true the slot counts from now on
    while not STOP.is_set():
        serve_one()


def load_model() -> None:
    """Load your model here."""


def serve_one() -> None:
    """Process one message of your queue; this placeholder only waits."""
    STOP.wait(1.0)


if __name__ == "__main__":
    main()
