"""In-flight messages and the extension of their visibility timeout."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spot_work.sqs.address import CALL_ERRORS, describe
from spot_work.sqs.wire import MAX_BATCH_ENTRIES

log: Final = logging.getLogger("spot_work")

_NOT_IN_FLIGHT: Final = ("MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue")
"""Error codes for a message that is visible again, deleted, or in flight for 12 hours."""
_EXTENSIONS_PER_TIMEOUT: Final = 3
"""More than one: a failed extension is retried before the timeout ends."""


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
    """Extends the visibility timeout of in-flight messages; safe to use from many threads."""

    def __init__(self, client: Any, queue_name: str) -> None:
        self._client = client
        self._queue_name = queue_name
        self._url = ""
        self._visibility_seconds = 0
        self._messages: dict[str, InFlightMessage] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def open(self, url: str, visibility_seconds: int) -> None:
        """Start to extend messages; ``visibility_seconds`` is the queue's visibility timeout."""
        self._url, self._visibility_seconds = url, visibility_seconds
        threading.Thread(target=self._extend_all, name="spot-work-visibility", daemon=True).start()

    def add(self, received: Mapping[str, Any]) -> InFlightMessage | None:
        """Add a received message; None if it is in flight here already, which updates its receipt."""
        hidden_until, receipt = time.monotonic() + self._visibility_seconds, received["ReceiptHandle"]
        with self._changed:
            in_flight = self._messages.get(received["MessageId"])
            if in_flight is not None and not in_flight.is_lost:
                # Only the newest receipt handle reliably deletes a message.
                # Source: SQS developer guide, "queue and message identifiers".
                in_flight.receipt, in_flight.hidden_until = receipt, hidden_until
                return None
            message = InFlightMessage(received["MessageId"], received, receipt, hidden_until)
            self._messages[message.id] = message
            return message

    def remove(self, messages: Iterable[InFlightMessage]) -> None:
        """Stop extending messages that are deleted, requeued or given up."""
        with self._changed:
            for message in messages:
                if self._messages.get(message.id) is message:
                    del self._messages[message.id]
            self._changed.notify_all()

    def is_hidden(self, message: InFlightMessage) -> bool:
        """Return whether a message is still hidden from other workers; if not, it is removed."""
        if not message.is_lost and message.hidden_until > time.monotonic():
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

    def _extend_all(self) -> None:
        while not self._closed.wait(self._visibility_seconds / _EXTENSIONS_PER_TIMEOUT):
            with self._changed:
                messages = [message for message in self._messages.values() if not message.is_lost]
            for first in range(0, len(messages), MAX_BATCH_ENTRIES):
                self._extend(messages[first : first + MAX_BATCH_ENTRIES])

    def _extend(self, messages: Sequence[InFlightMessage]) -> None:
        started_at = time.monotonic()
        receipts = [message.receipt for message in messages]
        try:
            response = self._client.change_message_visibility_batch(
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(n), "ReceiptHandle": receipt, "VisibilityTimeout": self._visibility_seconds}
                    for n, receipt in enumerate(receipts)
                ],
            )
        except CALL_ERRORS as error:
            log.warning("%s: visibility timeout not extended: %s", self._queue_name, describe(error))
            return
        for entry in response.get("Successful", ()):
            messages[int(entry["Id"])].hidden_until = started_at + self._visibility_seconds
        for entry in response.get("Failed", ()):
            message, receipt = messages[int(entry["Id"])], receipts[int(entry["Id"])]
            # A message with a newer receipt is hidden by that delivery.
            if entry["Code"].rpartition(".")[2] in _NOT_IN_FLIGHT and message.receipt == receipt:
                message.is_lost = True
