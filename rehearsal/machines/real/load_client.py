"""A service's client, as a process of its own: it asks at a steady rate and waits for every answer.

``python -m rehearsal.machines.real.load_client QUEUE RATE STATUS`` with the broker in ``SPOT_WORK_URL``.
SIGTERM: no more requests, wait for the answers, write the status a last time, end. Here time is real
time: whoever starts it may live in a simulated one.
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

PATIENCE: Final = 120.0
"""Real seconds after which a request without an answer counts as lost."""
_BYTES: Final = 1024
"""Of a request: an image of so many pixels."""
_TELL_EVERY: Final = 0.1


@dataclass
class AskerStatus:
    """How it stands: counts of requests, and of the waits (real seconds) the longest and all together."""

    requests: int = 0
    answered: int = 0
    lost: int = 0
    longest_wait: float = 0.0
    waited: float = 0.0

    @property
    def waiting(self) -> int:
        """Requests that have no answer yet."""
        return self.requests - self.answered - self.lost


def read(path: Path) -> AskerStatus:
    """Return what was told last; nothing has happened where nothing was."""
    return AskerStatus(**json.loads(path.read_text())) if path.exists() else AskerStatus()


class Asker:
    """Asks ``client`` so often a second, until it is told to stop."""

    def __init__(self, client: Client, rate: float, place: Path) -> None:
        self._client = client
        self._rate = rate
        self._place = place
        self._status = AskerStatus()
        self._guard = threading.Lock()
        self._told_at = 0.0
        self.stop = threading.Event()

    def run(self) -> AskerStatus:
        """Ask until ``stop``; return how it stands when everything is answered or lost."""
        begun, dice = time.monotonic(), random.Random(7)
        while not self.stop.wait(max(begun + self._status.requests / self._rate - time.monotonic(), 0.0)):
            self._ask(dice.randbytes(_BYTES))
            self._tell()
        while self._status.waiting:
            time.sleep(_TELL_EVERY)
            self._tell()
        self._tell(now=True)
        return self._status

    def _ask(self, image: bytes) -> None:
        sent = time.monotonic()
        with self._guard:
            self._status.requests += 1
        try:
            answer = self._client.submit(image, timeout=PATIENCE)
        except Exception:  # the client could not even send it
            with self._guard:
                self._status.lost += 1
            return
        answer.add_done_callback(lambda done: self._hear(done, time.monotonic() - sent))

    def _hear(self, answer: Future[Any], seconds: float) -> None:
        is_answered = not answer.cancelled() and answer.exception() is None
        with self._guard:
            status = self._status
            status.answered += is_answered
            status.lost += not is_answered
            status.waited += seconds
            status.longest_wait = max(status.longest_wait, seconds)

    def _tell(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._told_at + _TELL_EVERY:
            return
        self._told_at = time.monotonic()
        with self._guard:
            text = json.dumps(asdict(self._status))
        beside = self._place.with_name(f".{self._place.name}")
        beside.write_text(text)
        beside.replace(self._place)


def main(arguments: Sequence[str]) -> int:
    """Ask until SIGTERM; 0 in any case: what was lost stands in the status."""
    from spot_work import Client

    queue, rate, place = arguments
    with Client(os.environ["SPOT_WORK_URL"], queue) as client:
        asker = Asker(client, float(rate), Path(place))
        signal.signal(signal.SIGTERM, lambda *_: asker.stop.set())
        asker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
