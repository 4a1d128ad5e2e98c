"""The client's side of an SQS queue."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any, Final

from spot_work.errors import BrokerRefusedError, WorkError
from spot_work.queue import threads
from spot_work.queue.backoff import Backoff
from spot_work.queue.publisher import RequestPublisher, resolve_reply
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl, UrlSource
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests
from spot_work.sqs import reply_queue, wire
from spot_work.sqs.address import CALL_ERRORS, Address, call_batch, describe, is_not_found, is_permanent

log: Final = logging.getLogger("spot_work")

_POLL_SECONDS: Final = 20
"""Duration of a long poll: the maximum of SQS."""
_REPLY_TO_BYTES: Final = 300
"""Bytes reserved for the URL of the reply queue, which is unknown until the queue is created."""
_DELETE_ATTEMPTS: Final = 3
_DELETE_SECONDS: Final = 5.0
"""No attempt starts after this time, because `close` waits for it."""


class SqsPublisher(RequestPublisher):
    """Sends requests in batches, and polls its own reply queue.

    Args:
        url: ``sqs://region/account``.
        client: a boto3 client, for tests.

    Raises:
        ValueError: the URL cannot be parsed, or the queue's name is invalid.
    """

    def __init__(
        self, url: BrokerUrl | UrlSource, queue_: Queue, pending: PendingRequests, client: Any = None
    ) -> None:
        self._address = Address.parse(UrlSource.of(url).url, queue_.name)
        self._queue = queue_
        self._pending = pending
        # boto3 would send a request again unmarked; each call here has a loop that repeats it.
        self._client = client or self._address.client(attempts=1)
        self._url = self._reply_url = ""
        self._outbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._opened, self._closed = threading.Event(), threading.Event()
        for loop in (self._send_all, self._receive_replies, self._maintain_reply_queues):
            threads.start("spot-work-publisher", loop, self._pending.fail_all)

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request above the maximum size of SQS, or with a priority."""
        if message.priority != "normal":
            raise ValueError(
                f"priority must be 'normal', not {message.priority!r}: SQS has no priorities; use "
                "another queue"
            )
        if (size := wire.size(wire.to_entry(message)) + _REPLY_TO_BYTES) > wire.MAX_BYTES:
            raise ValueError(
                f"a request must have up to {wire.MAX_BYTES} bytes in SQS, with bytes as base64, not {size}"
            )

    def send(self, request_id: str) -> None:
        self._outbox.put(request_id)

    def cancel(self, request_id: str) -> None:
        """Do nothing: a message in SQS cannot be removed without receiving it."""

    def close(self) -> None:
        self._closed.set()
        self._outbox.put("")
        if self._opened.is_set():
            self._delete_reply_queue()

    def _open(self) -> bool:
        """Resolve the queue's URL and create the reply queue; return whether this has succeeded."""
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                self._url = self._address.queue_url(self._client, self._queue.name)
                self._reply_url = reply_queue.create(self._client, self._queue.name)
            except CALL_ERRORS as error:
                if is_permanent(error):
                    refused = BrokerRefusedError(f"{self._queue.name}: {describe(error)}")
                    log.error("%s", refused)
                    self._pending.fail_all(refused)
                    return False
                log.warning("%s: %s; retrying", self._queue.name, describe(error))
                backoff.wait(self._closed)
            else:
                self._opened.set()
                if self._closed.is_set():
                    self._delete_reply_queue()
                return True
        return False

    def _delete_reply_queue(self) -> None:
        backoff, end = Backoff(), time.monotonic() + _DELETE_SECONDS
        for remaining_attempts in reversed(range(_DELETE_ATTEMPTS)):
            try:
                self._client.delete_queue(QueueUrl=self._reply_url)
            except CALL_ERRORS as error:
                if is_not_found(error):
                    return
                if not remaining_attempts or is_permanent(error) or time.monotonic() > end:
                    # Another client deletes it later: `reply_queue.delete_abandoned`.
                    log.warning("%s: reply queue not deleted: %s", self._reply_url, describe(error))
                    return
                time.sleep(backoff.next_delay())
            else:
                return

    def _send_all(self) -> None:
        if not self._open():
            return
        backoff = Backoff()
        while True:
            request_ids = [self._outbox.get()]
            while len(request_ids) < wire.MAX_BATCH_ENTRIES and not self._outbox.empty():
                request_ids.append(self._outbox.get())
            if self._closed.is_set():
                return
            entries = {}
            for request_id in request_ids:
                request = self._pending.get(request_id)
                if request is not None and not request.is_confirmed:
                    entries[request_id] = wire.to_entry(request.to_message(self._reply_url))
                    request.sent_via = self
            for batch in wire.batches(entries.items()):
                if self._send_batch(batch):
                    backoff.reset()
                else:
                    backoff.wait(self._closed)

    def _send_batch(self, batch: list[dict[str, Any]]) -> bool:
        """Send a batch; return whether all succeeded. Transient failures return to the outbox."""
        try:
            response = call_batch(self._client.send_message_batch, self._url, batch)
        except CALL_ERRORS as error:
            log.warning("%s: %s; retrying", self._queue.name, describe(error))
            response = {"Failed": [{"Id": entry["Id"]} for entry in batch]}
        for sent in response.get("Successful", ()):
            if (request := self._pending.get(sent["Id"])) is not None:
                request.is_confirmed = True
        for failed in response.get("Failed", ()):
            if failed.get("SenderFault"):
                error_text = f"{self._queue.name}: {failed['Code']} {failed.get('Message', '')}".strip()
                self._pending.resolve(failed["Id"], WorkError(error_text))
            else:
                self._outbox.put(failed["Id"])
        return not response.get("Failed")

    def _receive_replies(self) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            if not self._opened.wait(1.0):
                continue
            url = self._reply_url
            try:
                response = self._client.receive_message(
                    QueueUrl=url,
                    MaxNumberOfMessages=wire.MAX_BATCH_ENTRIES,
                    WaitTimeSeconds=_POLL_SECONDS,
                    MessageAttributeNames=["All"],
                )
                if messages := response.get("Messages", ()):
                    self._resolve(url, messages)
                backoff.reset()
            except CALL_ERRORS as error:
                if self._closed.is_set():
                    return
                log.warning("%s: %s; retrying", self._queue.name, describe(error))
                backoff.wait(self._closed)
                if is_not_found(error):
                    self._replace_reply_queue()

    def _resolve(self, url: str, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            try:
                resolve_reply(self._pending, self._queue.name, wire.read(message))
            except Exception as error:  # whatever another sender may send ends here
                log.error("%s: malformed reply: %s", self._queue.name, error)
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        self._client.delete_message_batch(QueueUrl=url, Entries=entries)

    def _replace_reply_queue(self) -> None:
        """Create another reply queue and send all requests again: their replies go to the deleted queue."""
        try:
            self._reply_url = reply_queue.create(self._client, self._queue.name)
        except CALL_ERRORS as error:
            log.warning("%s: %s; retrying", self._queue.name, describe(error))
            return
        for request_id in self._pending.unconfirmed(reset=True):
            self.send(request_id)

    def _maintain_reply_queues(self) -> None:
        while not self._closed.is_set():
            if not self._opened.wait(1.0):
                continue
            reply_queue.delete_abandoned(self._client, self._queue.name)
            if self._closed.wait(reply_queue.MARK_ALIVE_INTERVAL_SECONDS):
                return
            try:
                reply_queue.mark_alive(self._client, self._reply_url)
            except CALL_ERRORS as error:
                log.warning("%s: %s", self._reply_url, describe(error))
