"""A load client in its own process: it sends requests at a constant rate and waits for every reply.

``python -m rehearsal.machines.real.load_client QUEUE RATE STATUS`` with the broker in ``SPOT_WORK_URL``.
SIGTERM: stop sending, wait for the replies, write the final status, end. Its time is real, even if the parent
process runs in simulated time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spot_work import Client

TIMEOUT_SECONDS: Final = 120.0
"""Real seconds after which a request without a reply counts as lost."""
_BYTES: Final = 1024
"""Size of a request, an image of as many pixels."""
_STATUS_SECONDS: Final = 0.1


@dataclass
class LoadStatus:
    """Counts of requests, and longest and total wait in real seconds."""

    requests: int = 0
    answered: int = 0
    lost: int = 0
    longest_wait: float = 0.0
    waited: float = 0.0

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return self.requests - self.answered - self.lost


def read(path: Path) -> LoadStatus:
    """Return the last written status, an empty one if there is none."""
    return LoadStatus(**json.loads(path.read_text())) if path.exists() else LoadStatus()


class LoadClient:
    """Sends ``rate`` requests per second with ``client`` until ``stop`` is set."""

    def __init__(self, client: Client, rate: float, path: Path) -> None:
        self._client = client
        self._rate = rate
        self._path = path
        self._status = LoadStatus()
        self._guard = threading.Lock()
        self._written_at = 0.0
        self.stop = threading.Event()

    def run(self) -> LoadStatus:
        """Send until ``stop``; return the status when every request is answered or lost."""
        started, dice = time.monotonic(), random.Random(7)
        while not self.stop.wait(max(started + self._status.requests / self._rate - time.monotonic(), 0.0)):
            self._ask(dice.randbytes(_BYTES))
            self._write_status()
        while self._status.waiting:
            time.sleep(_STATUS_SECONDS)
            self._write_status()
        self._write_status(now=True)
        return self._status

    def _ask(self, image: bytes) -> None:
        sent = time.monotonic()
        with self._guard:
            self._status.requests += 1
        try:
            reply = self._client.submit(image, timeout=TIMEOUT_SECONDS)
        except Exception:  # the request could not be sent
            with self._guard:
                self._status.lost += 1
            return
        reply.add_done_callback(lambda done: self._on_reply(done, time.monotonic() - sent))

    def _on_reply(self, reply: Future[Any], seconds: float) -> None:
        is_answered = not reply.cancelled() and reply.exception() is None
        with self._guard:
            status = self._status
            status.answered += is_answered
            status.lost += not is_answered
            status.waited += seconds
            status.longest_wait = max(status.longest_wait, seconds)

    def _write_status(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._written_at + _STATUS_SECONDS:
            return
        self._written_at = time.monotonic()
        with self._guard:
            text = json.dumps(asdict(self._status))
        temporary = self._path.with_name(f".{self._path.name}")
        temporary.write_text(text)
        temporary.replace(self._path)


def main(arguments: Sequence[str]) -> int:
    """Send until SIGTERM; return 0 (the status has the lost requests)."""
    from spot_work import Client

    queue, rate, path = arguments
    with Client(os.environ["SPOT_WORK_URL"], queue) as client:
        load_client = LoadClient(client, float(rate), Path(path))
        signal.signal(signal.SIGTERM, lambda *_: load_client.stop.set())
        load_client.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
