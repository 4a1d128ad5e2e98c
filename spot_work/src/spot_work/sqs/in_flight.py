"""The messages that a worker has received and not settled, kept hidden from others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spot_work.sqs.address import TROUBLE, words
from spot_work.sqs.wire import MOST_IN_A_CALL

log: Final = logging.getLogger("spot_work")

_LOST: Final = ("MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue")
"""Codes by which SQS says that a message is hidden no more: seen again, deleted, or held for 12 hours."""
_PARTS: Final = 3
"""Of the visibility timeout: it is extended after each, so that one failure is none."""


@dataclass
class Held:
    """A message that is here: ``id`` stays, ``receipt`` is of the newest delivery.

    ``until`` (monotonic) is when others see it if nobody extends it.
    """

    id: str
    received: Mapping[str, Any]
    receipt: str
    until: float
    is_lost: bool = False


class Shelf:
    """Holds messages and extends their visibility until they are taken off; safe to use from many threads."""

    def __init__(self, client: Any, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._url = ""
        self._visibility = 0
        self._held: dict[str, Held] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def open(self, url: str, visibility: int) -> None:
        """Begin to extend what is put here; ``visibility`` is the queue's timeout in seconds."""
        self._url, self._visibility = url, visibility
        threading.Thread(target=self._extend_all, name="spot-work-hold", daemon=True).start()

    def put(self, received: Mapping[str, Any]) -> Held | None:
        """Hold a message; None if it is here already, and only its receipt is new."""
        until, receipt = time.monotonic() + self._visibility, received["ReceiptHandle"]
        with self._changed:
            held = self._held.get(received["MessageId"])
            if held is not None and not held.is_lost:
                # Only the newest receipt deletes for sure (SQS guide, "queue and message identifiers").
                held.receipt, held.until = receipt, until
                return None
            fresh = Held(received["MessageId"], received, receipt, until)
            self._held[fresh.id] = fresh
            return fresh

    def remove(self, settled: Iterable[Held]) -> None:
        """Take messages off: they are deleted, handed back, or given up."""
        with self._changed:
            for held in settled:
                if self._held.get(held.id) is held:
                    del self._held[held.id]
            self._changed.notify_all()

    def is_ours(self, held: Held) -> bool:
        """Tell whether a message is still hidden from others; one that is not goes off."""
        if not held.is_lost and held.until > time.monotonic():
            return True
        self.remove([held])
        return False

    def wait_below(self, most: int, end: threading.Event) -> int:
        """Wait until fewer than ``most`` are here or ``end`` is set; return how many are."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) < most or end.is_set())
            return len(self._held)

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Extend nothing any more."""
        self._closed.set()

    def _extend_all(self) -> None:
        while not self._closed.wait(self._visibility / _PARTS):
            with self._changed:
                held = [one for one in self._held.values() if not one.is_lost]
            for first in range(0, len(held), MOST_IN_A_CALL):
                self._extend(held[first : first + MOST_IN_A_CALL])

    def _extend(self, some: Sequence[Held]) -> None:
        begun = time.monotonic()
        receipts = [one.receipt for one in some]
        try:
            answer = self._client.change_message_visibility_batch(
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(n), "ReceiptHandle": receipt, "VisibilityTimeout": self._visibility}
                    for n, receipt in enumerate(receipts)
                ],
            )
        except TROUBLE as error:
            log.warning("%s: requests could not be held: %s", self._queue, words(error))
            return
        for one in answer.get("Successful", ()):
            some[int(one["Id"])].until = begun + self._visibility
        for one in answer.get("Failed", ()):
            held = some[int(one["Id"])]
            # With a newer receipt it is hidden by that.
            if one["Code"].rpartition(".")[2] in _LOST and held.receipt == receipts[int(one["Id"])]:
                held.is_lost = True
