"""In-flight messages and the extension of their visibility timeout."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spot_work.queue import threads
from spot_work.queue.threads import OnFailure
from spot_work.sqs.address import CALL_ERRORS, describe
from spot_work.sqs.visibility import EXTENSIONS_PER_TIMEOUT, Extension, batches, extend

log: Final = logging.getLogger("spot_work")

_CONNECT_SECONDS: Final = 5.0
_START_SECONDS: Final = 30.0
"""Maximum wait for the process at the start: no message is taken before its timeout can be extended."""
_RECONNECT_SECONDS: Final = 0.5
_NEWS_SECONDS: Final = 1.0
"""Maximum wait for an extension that was made while this process could not read of it."""


@dataclass
class InFlightMessage:
    """A message that was received and is not settled.

    ``id`` is the message id, ``receipt`` the handle of the newest delivery. ``hidden_until`` (monotonic) is
    the end of the visibility timeout. ``is_lost``: SQS has refused the extension.
    """

    id: str
    received: Mapping[str, Any]
    receipt: str
    hidden_until: float
    is_lost: bool = False


class VisibilityExtender:
    """Extends the visibility timeout of in-flight messages; safe to use from many threads.

    Args:
        client: a boto3 client.
        queue_name: for the log.
        on_failure: as for `spot_work.queue.threads`.
        relay: returns the local port of the process that extends them, also while a function holds this
            one's interpreter lock (`spot_work.watchdog`); None: a thread here does.
    """

    def __init__(
        self, client: Any, queue_name: str, on_failure: OnFailure, relay: Callable[[], int] | None = None
    ) -> None:
        self._client = client
        self._queue_name = queue_name
        self._on_failure = on_failure
        self._relay = relay
        self._url = ""
        self._visibility_seconds = 0
        self._messages: dict[str, InFlightMessage] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._connection: socket.socket | None = None

    def open(self, url: str, visibility_seconds: int) -> None:
        """Start to extend messages; ``visibility_seconds`` is the queue's visibility timeout."""
        self._url, self._visibility_seconds = url, visibility_seconds
        extend_all = self._extend_all if self._relay is None else self._follow
        threads.start("spot-work-visibility", extend_all, self._on_failure)
        if self._relay is not None:
            with self._changed:
                self._changed.wait_for(lambda: self._connection is not None, _START_SECONDS)

    def add(self, received: Mapping[str, Any]) -> InFlightMessage | None:
        """Add a received message; None if it is in flight here already, which updates its receipt."""
        hidden_until, receipt = time.monotonic() + self._visibility_seconds, received["ReceiptHandle"]
        with self._changed:
            in_flight = self._messages.get(received["MessageId"])
            if in_flight is not None and not in_flight.is_lost:
                # Only the newest receipt handle reliably deletes a message.
                # Source: SQS developer guide, "queue and message identifiers".
                self._send(remove=in_flight.receipt, add=receipt)
                in_flight.receipt, in_flight.hidden_until = receipt, hidden_until
                return None
            message = InFlightMessage(received["MessageId"], received, receipt, hidden_until)
            self._messages[message.id] = message
            self._send(add=receipt)
            return message

    def remove(self, messages: Iterable[InFlightMessage]) -> None:
        """Stop extending messages that are deleted, requeued or given up."""
        with self._changed:
            for message in messages:
                if self._messages.get(message.id) is message:
                    del self._messages[message.id]
                    self._send(remove=message.receipt)
            self._changed.notify_all()

    def is_hidden(self, message: InFlightMessage) -> bool:
        """Return whether a message is still hidden from other workers; if not, it is removed."""

        def is_known() -> bool:
            return message.is_lost or message.hidden_until > time.monotonic()

        with self._changed:
            if self._connection is not None:
                self._changed.wait_for(is_known, _NEWS_SECONDS)
            if is_known() and not message.is_lost:
                return True
        self.remove([message])
        return False

    def wait_below(self, limit: Callable[[], int], stop: threading.Event) -> int:
        """Wait until fewer than ``limit()`` messages are in flight or ``stop`` is set; return how many are.

        The limit is read again after `notify`.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._messages) < limit() or stop.is_set())
            return len(self._messages)

    def notify(self) -> None:
        """Make `wait_below` check its condition."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Stop extending messages."""
        self._closed.set()
        with self._changed, contextlib.suppress(OSError):
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)

    def _receipts(self) -> list[str]:
        with self._changed:
            return [message.receipt for message in self._messages.values() if not message.is_lost]

    def _extend_all(self) -> None:
        while not self._closed.wait(self._visibility_seconds / EXTENSIONS_PER_TIMEOUT):
            for batch in batches(self._receipts()):
                try:
                    self._apply(extend(self._client, self._url, self._visibility_seconds, batch))
                except CALL_ERRORS as error:
                    log.warning("%s: visibility timeout not extended: %s", self._queue_name, describe(error))

    def _apply(self, extension: Extension) -> None:
        hidden, lost = set(extension.hidden), set(extension.lost)
        with self._changed:
            # A message with a newer receipt is hidden by that delivery.
            for message in self._messages.values():
                if message.receipt in hidden:
                    message.hidden_until = extension.hidden_until
                message.is_lost = message.is_lost or message.receipt in lost
            self._changed.notify_all()

    def _follow(self) -> None:
        """Keep the process informed of the messages, and read what it has extended."""
        assert self._relay is not None
        while not self._closed.is_set():
            try:
                address = "127.0.0.1", self._relay()
                with socket.create_connection(address, _CONNECT_SECONDS) as connection:
                    connection.settimeout(None)
                    self._connect(connection)
                    for line in connection.makefile("rb"):
                        self._apply(Extension(**json.loads(line)))
            except (OSError, ValueError) as error:
                log.warning("%s: visibility timeouts not extended: %s; retrying", self._queue_name, error)
            with self._changed:
                self._connection = None
            self._closed.wait(_RECONNECT_SECONDS)

    def _connect(self, connection: socket.socket) -> None:
        with self._changed:
            self._connection = connection
            self._send(name=self._queue_name, url=self._url, seconds=self._visibility_seconds)
            for receipt in self._receipts():
                self._send(add=receipt)
            self._changed.notify_all()

    def _send(self, **values: Any) -> None:
        """Send a line; what does not arrive is sent again on the next connection."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(json.dumps(values).encode() + b"\n")
