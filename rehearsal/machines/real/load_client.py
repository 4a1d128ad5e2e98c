"""A load client in its own process: it sends requests at a constant rate and checks every reply.

``python -m rehearsal.machines.real.load_client RATE STATUS`` in the folder of a service's ``client.py``. That
has ``Reader.from_environment()`` and ``sample(dice)``, a request and its expected text. SIGTERM: stop
sending, wait for the replies, write the final status, end. Its time is real, even if the parent process runs
in simulated time.
"""

from __future__ import annotations

import importlib
import json
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

TIMEOUT_SECONDS: Final = 60.0
"""Real seconds after which a request without a reply counts as lost."""
_THREADS: Final = 600
"""Maximum number of requests that wait at once."""
_STATUS_SECONDS: Final = 0.1
_QUANTILES: Final = (50, 95, 99)


@dataclass
class LoadStatus:
    """Counts of requests, and waits in real seconds.

    ``wrong`` are replies with another text than expected; they count as answered. ``sources`` are the replies
    by the worker or API that gave the text. ``quantiles`` are waits by percentile, in the final status only.
    """

    requests: int = 0
    answered: int = 0
    lost: int = 0
    wrong: int = 0
    failed_calls: int = 0
    withheld_calls: int = 0
    longest_wait: float = 0.0
    waited: float = 0.0
    sources: dict[str, int] = field(default_factory=dict)
    quantiles: dict[str, float] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return self.requests - self.answered - self.lost


def read(path: Path) -> LoadStatus:
    """Return the last written status, an empty one if there is none."""
    return LoadStatus(**json.loads(path.read_text())) if path.exists() else LoadStatus()


def quantile(waits: Sequence[float], percent: int) -> float:
    """Return the smallest wait that ``percent`` per cent of the requests did not exceed; 0 without any."""
    ordered = sorted(waits)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0


class LoadClient:
    """Sends ``rate`` requests per second with ``reader`` until ``stop`` is set.

    ``sample`` returns a request and its expected text; ``calls`` the failed and the withheld calls of the
    external API.
    """

    def __init__(
        self,
        reader: Any,
        sample: Callable[[random.Random], tuple[bytes, str]],
        calls: Callable[[], tuple[int, int]],
        rate: float,
        path: Path,
    ) -> None:
        self._reader = reader
        self._sample = sample
        self._calls = calls
        self._rate = rate
        self._path = path
        self._status = LoadStatus()
        self._waits: list[float] = []
        self._guard = threading.Lock()
        self._written_at = 0.0
        self._threads = ThreadPoolExecutor(_THREADS)
        self.stop = threading.Event()

    def run(self) -> LoadStatus:
        """Send until ``stop``; return the status when every request is answered or lost."""
        started, dice = time.monotonic(), random.Random(7)
        while not self.stop.wait(max(started + self._status.requests / self._rate - time.monotonic(), 0.0)):
            image, text = self._sample(dice)
            with self._guard:
                self._status.requests += 1
            self._threads.submit(self._ask, image, text, time.monotonic())
            self._write_status()
        while self._status.waiting:
            time.sleep(_STATUS_SECONDS)
            self._write_status()
        self._status.quantiles = {str(percent): quantile(self._waits, percent) for percent in _QUANTILES}
        self._write_status(now=True)
        return self._status

    def _ask(self, image: bytes, expected: str, sent: float) -> None:
        try:
            reply = self._reader.read(image, TIMEOUT_SECONDS)
        except Exception as error:
            logging.getLogger(__name__).error("request lost: %s: %s", type(error).__name__, error)
            reply = None
        seconds = time.monotonic() - sent
        with self._guard:
            status = self._status
            if reply is None:
                status.lost += 1
            else:
                status.answered += 1
                status.wrong += reply.text != expected
                status.sources[reply.source] = status.sources.get(reply.source, 0) + 1
            status.waited += seconds
            status.longest_wait = max(status.longest_wait, seconds)
            self._waits.append(seconds)

    def _write_status(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._written_at + _STATUS_SECONDS:
            return
        self._written_at = time.monotonic()
        with self._guard:
            self._status.failed_calls, self._status.withheld_calls = self._calls()
            text = json.dumps(asdict(self._status))
        temporary = self._path.with_name(f".{self._path.name}")
        temporary.write_text(text)
        temporary.replace(self._path)


def main(arguments: Sequence[str]) -> int:
    """Send until SIGTERM; return 0 (the status has the lost requests)."""
    client, (rate, path) = importlib.import_module("client"), arguments
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    reader = client.Reader.from_environment()
    load_client = LoadClient(
        reader,
        client.sample,
        lambda: (reader.counts[client.FAILED], reader.counts[client.WITHHELD]),
        float(rate),
        Path(path),
    )
    signal.signal(signal.SIGTERM, lambda *_: load_client.stop.set())
    load_client.run()
    reader.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
