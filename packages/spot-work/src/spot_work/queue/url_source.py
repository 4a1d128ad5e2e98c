"""The URL of a broker: a text, or a function that reads it again when the broker has refused its login."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

BrokerUrl: TypeAlias = str | Callable[[], str]
"""A URL, or a function that returns the present one: it may block, and has a timeout of its own."""


class UrlSource:
    """The URL that all connections of a client or worker log in with; safe to use from many threads.

    Args:
        url: as for `Client`. A function is called here, and whenever the broker has refused the login.

    Raises:
        Exception: what the function raises.
    """

    def __init__(self, url: BrokerUrl) -> None:
        self._read = url if callable(url) else None
        self._lock = threading.Lock()
        self.url = url() if callable(url) else url
        """The URL that was read last."""
        self.can_read_again = self._read is not None

    @classmethod
    def of(cls, url: BrokerUrl | UrlSource) -> UrlSource:
        """Return the source of a URL; a source is returned as it is."""
        return url if isinstance(url, UrlSource) else cls(url)

    def read_again(self, refused: str) -> str:
        """Return the URL to log in with after ``refused``: another connection's newer one, or read again.

        Raises:
            Exception: what the function raises.
        """
        with self._lock:
            if self._read is not None and self.url == refused:
                self.url = self._read()
            return self.url
