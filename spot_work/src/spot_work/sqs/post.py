"""The client's end of a queue of SQS."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any, Final

from spot_work.errors import BrokerRefusedError, WorkError
from spot_work.message import Message
from spot_work.pending import Pending
from spot_work.publisher import Post, deliver
from spot_work.queues import Queue
from spot_work.sqs import answers, wire
from spot_work.sqs.address import TROUBLE, Address, is_gone, is_refusal, words
from spot_work.sqs.pause import Pause

log: Final = logging.getLogger("spot_work")

_POLL_SECONDS: Final = 20
"""Of a long poll: the longest that SQS knows."""
_ROOM: Final = 300
"""Bytes left for the address of the queue of answers, which is not known before it is there."""
_LEAVE_TRIES: Final = 3
_LEAVE_SECONDS: Final = 5.0
"""After so long no further try is begun: whoever closes waits for it."""


class SqsPost(Post):
    """Sends requests, many in a call, and reads a queue of answers of its own.

    Args:
        url: ``sqs://region/account``.

    Raises:
        ValueError: the address cannot be read, or SQS has no such names.
    """

    def __init__(self, url: str, queue_: Queue, pending: Pending, client: Any = None) -> None:
        self._address = Address.parse(url, queue_.name)
        self._queue = queue_
        self._pending = pending
        self._client = client or self._address.client()
        self._url = self._answers = ""
        self._outbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._opened, self._closed = threading.Event(), threading.Event()
        for work in (self._send_all, self._read_all, self._keep):
            threading.Thread(target=work, name="spot-work-post", daemon=True).start()

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request that is larger than SQS takes."""
        if (size := wire.size(wire.entry(message)) + _ROOM) > wire.LARGEST:
            raise ValueError(f"a request of {size} bytes, allowed: {wire.LARGEST} in SQS, bytes as base64")

    def send(self, identity: str) -> None:
        """Send a request."""
        self._outbox.put(identity)

    def withdraw(self, identity: str) -> None:
        """Do nothing: nobody can take a message out of SQS without receiving it."""

    def close(self) -> None:
        """Remove the queue of answers, and end."""
        self._closed.set()
        self._outbox.put("")
        if self._opened.is_set():
            self._leave()

    def _open(self) -> bool:
        """Find the queue and make that of answers; False if there is no use in going on."""
        pause = Pause()
        while not self._closed.is_set():
            try:
                self._url = self._address.queue_url(self._client, self._queue.name)
                self._answers = answers.make(self._client, self._queue.name)
            except TROUBLE as error:
                if is_refusal(error):
                    refused = BrokerRefusedError(f"{self._queue.name}: {words(error)}")
                    log.error("%s", refused)
                    self._pending.fail(refused)
                    return False
                log.warning("%s: %s; again in a moment", self._queue.name, words(error))
                pause.wait(self._closed)
            else:
                self._opened.set()
                if self._closed.is_set():
                    self._leave()
                return True
        return False

    def _leave(self) -> None:
        pause, end = Pause(), time.monotonic() + _LEAVE_SECONDS
        for left in reversed(range(_LEAVE_TRIES)):
            try:
                self._client.delete_queue(QueueUrl=self._answers)
            except TROUBLE as error:
                if is_gone(error):
                    return
                if not left or is_refusal(error) or time.monotonic() > end:
                    # Other clients remove it, see `answers.sweep`.
                    log.warning("%s: is left behind: %s", self._answers, words(error))
                    return
                time.sleep(pause.draw())
            else:
                return

    def _send_all(self) -> None:
        if not self._open():
            return
        pause = Pause()
        while True:
            some = [self._outbox.get()]
            while len(some) < wire.MOST_IN_A_CALL and not self._outbox.empty():
                some.append(self._outbox.get())
            if self._closed.is_set():
                return
            entries = {}
            for identity in some:
                if (one := self._pending.get(identity)) is not None and not one.is_kept:
                    entries[identity] = wire.entry(one.addressed(self._answers))
                    one.via = self
            for call in wire.calls(entries.items()):
                if self._send(call):
                    pause.over()
                else:
                    pause.wait(self._closed)

    def _send(self, call: list[dict[str, Any]]) -> bool:
        """Make one call; what failed for the moment goes to the outbox again. Tell whether all was well."""
        try:
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=call)
        except TROUBLE as error:
            log.warning("%s: %s; again in a moment", self._queue.name, words(error))
            answer = {"Failed": [{"Id": one["Id"]} for one in call]}
        for sent in answer.get("Successful", ()):
            if (one := self._pending.get(sent["Id"])) is not None:
                one.is_kept = True
        for failed in answer.get("Failed", ()):
            if failed.get("SenderFault"):
                told = f"{self._queue.name}: {failed['Code']} {failed.get('Message', '')}".strip()
                self._pending.settle(failed["Id"], WorkError(told))
            else:
                self._outbox.put(failed["Id"])
        return not answer.get("Failed")

    def _read_all(self) -> None:
        pause = Pause()
        while not self._closed.is_set():
            if not self._opened.wait(1.0):
                continue
            url = self._answers
            try:
                answer = self._client.receive_message(
                    QueueUrl=url,
                    MaxNumberOfMessages=wire.MOST_IN_A_CALL,
                    WaitTimeSeconds=_POLL_SECONDS,
                    MessageAttributeNames=["All"],
                )
                if got := answer.get("Messages", ()):
                    self._take(url, got)
                pause.over()
            except TROUBLE as error:
                if self._closed.is_set():
                    return
                log.warning("%s: %s; again in a moment", self._queue.name, words(error))
                pause.wait(self._closed)
                if is_gone(error):
                    self._move()

    def _take(self, url: str, got: list[dict[str, Any]]) -> None:
        for one in got:
            try:
                deliver(self._pending, self._queue.name, wire.read(one))
            except ValueError as error:
                log.error("%s: an answer cannot be read: %s", self._queue.name, error)
        read = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(got)]
        self._client.delete_message_batch(QueueUrl=url, Entries=read)

    def _move(self) -> None:
        """Make another queue of answers, and send all again: what they are answered went with the old one."""
        try:
            self._answers = answers.make(self._client, self._queue.name)
        except TROUBLE as error:
            log.warning("%s: %s; again in a moment", self._queue.name, words(error))
            return
        for identity in self._pending.unkept(forgetting=True):
            self.send(identity)

    def _keep(self) -> None:
        while not self._opened.wait(1.0):
            if self._closed.is_set():
                return
        while not self._closed.is_set():
            answers.sweep(self._client, self._queue.name)
            if self._closed.wait(answers.KEEP_EVERY):
                return
            try:
                answers.keep(self._client, self._answers)
            except TROUBLE as error:
                log.warning("%s: %s", self._answers, words(error))
