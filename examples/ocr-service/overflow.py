"""The external API that reads an image when the queue does not in time: one HTTP call, limited per hour.

Replace ``ExternalApi.read`` by a call to your provider. The price of its calls is on no bill of gpu-spot.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from typing import Final

HOUR_SECONDS: Final = 3600.0


class ApiError(Exception):
    """The external API has not read the image: an HTTP error, a timeout, or a response of another form."""


class CallLimit:
    """At most ``calls_per_hour`` calls of this process in any hour; safe to use from many threads.

    It is not shared: a service of five clients gives each a fifth of what it may spend.
    """

    def __init__(self, calls_per_hour: int, clock: Callable[[], float] = time.monotonic) -> None:
        if calls_per_hour < 0:
            raise ValueError(f"calls_per_hour must be 0 or more, not {calls_per_hour}")
        self._calls_per_hour = calls_per_hour
        self._clock = clock
        self._times: deque[float] = deque()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Count a call and return true, or return false at the limit. A failed call counts, too."""
        with self._lock:
            now = self._clock()
            while self._times and self._times[0] <= now - HOUR_SECONDS:
                self._times.popleft()
            if len(self._times) >= self._calls_per_hour:
                return False
            self._times.append(now)
            return True


class ExternalApi:
    """An OCR API: ``POST`` with the image, and ``{"text": …}`` as response.

    Args:
        url: ``https://…``; ``http://127.0.0.1:…`` for tests.
        key: sent as bearer token; it may not be part of a command line or a log.
        limit: of the calls.
        timeout_seconds: after which a call has failed. The client reserves this time before a deadline.
    """

    def __init__(self, url: str, key: str, limit: CallLimit, timeout_seconds: float = 5.0) -> None:
        if not url.startswith(("https://", "http://127.0.0.1:")):
            raise ValueError(f"the external API must have an https:// URL, not {url}")
        self._url = url
        self._key = key
        self.limit = limit
        self.timeout_seconds = timeout_seconds

    def read(self, image: bytes) -> str:
        """Return the text of an image; raises ``ApiError``."""
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "image/x-portable-graymap"}
        request = urllib.request.Request(self._url, image, headers)  # noqa: S310 - checked by the constructor
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_seconds) as response:  # noqa: S310
                text = json.load(response)["text"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ApiError(f"{type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise ApiError(f"the text must be a string, not {type(text).__name__}")
        return text
