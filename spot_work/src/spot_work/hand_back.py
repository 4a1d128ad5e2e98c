"""Requests that wait behind a batch that runs longer than expected go back to their queue."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from spot_work.consumer import RequestConsumer

LONG_SECONDS: Final = 0.2
"""Duration of a batch after which nothing waits behind it."""
_CHECK_SECONDS: Final = 0.1


class HandBack:
    """Watches the running batch from a thread; the consumer hands back what waits behind a long one."""

    def __init__(self, consumer: RequestConsumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        """Held while the consumer hands back, so that it does not do so after the batch has ended."""
        self._started_at: float | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start to watch, until `stop`."""
        threading.Thread(target=self._watch, name="spot-work-hand-back", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch the batch that runs in this context."""
        self._started_at = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._started_at = None

    def check(self) -> None:
        """Hand back what waits, if the running batch is long."""
        with self._lock:
            started_at = self._started_at
            if started_at is None or time.monotonic() - started_at < LONG_SECONDS:
                return
            if self._consumer.waiting_count:
                self._consumer.hand_back()

    def _watch(self) -> None:
        while not self._stopped.wait(_CHECK_SECONDS):
            self.check()
