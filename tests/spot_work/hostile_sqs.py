"""SQS as unkind as AWS says it may be: moto's server, which other processes reach, made hostile.

What AWS allows itself (SQS developer guide: "Amazon SQS at-least-once delivery", "message ordering", "short
and long polling", "visibility timeout"; ``DeleteMessage`` in the API reference): a message is delivered again
though it is hidden; the order is any; a poll returns fewer messages than there are; calls fail, and those in
batches in parts; an old receipt deletes nothing and says that it did; a message that others see is hidden by
nobody. moto does none of that, and its queues are not safe to use from many threads.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Self

import boto3
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.sqs.exceptions import SQSException
from moto.sqs.models import Message, SQSBackend, sqs_backends

REGION: Final = "eu-west-1"
ACCOUNT: Final = "123456789012"
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
_PATCHED: Final = (
    *("send_message_batch", "receive_message", "delete_message_batch"),
    *("change_message_visibility_batch", "create_queue", "delete_queue"),
)

_BUSY: Final = {"SenderFault": False, "Code": "InternalError", "Message": "a moment"}
_NOT_HIDDEN: Final = {"SenderFault": True, "Code": "MessageNotInflight", "Message": "others see it"}


class _BusyError(SQSException):
    """As after boto3's own tries: moto answers 400, which boto3 does not try again."""

    def __init__(self) -> None:
        super().__init__("ServiceUnavailable", "The request has failed due to a temporary failure")


class HostileSqs:
    """A server with one queue of requests and its dead-letter queue; a `tests.real.crowd` plays with it.

    Args:
        share: of calls that fail, of entries of a batch that do, of messages that are delivered twice.
    """

    def __init__(
        self,
        queue: str = "ocr",
        *,
        tries: int = 200,
        visibility: int = 10,
        share: float = 0.05,
        seed: int = 1,
    ) -> None:
        self.share = share
        self.twice = 0
        """Messages that were delivered though they were hidden."""
        self._queue, self._tries, self._visibility = queue, tries, visibility
        self._dice, self._lock = random.Random(seed), threading.RLock()
        self._plain: dict[str, Any] = {}
        self._refused: Counter[str] = Counter()
        self._unheard: set[str] = set()
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def url(self) -> str:
        """What workers and clients are told."""
        return f"sqs://{REGION}/{ACCOUNT}"

    @property
    def environment(self) -> dict[str, str]:
        """Where boto3 finds the server, and keys for it."""
        return {**_KEYS, "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{self._port}"}

    def client(self) -> Any:
        """Return a client of boto3."""
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client("sqs", region_name=REGION, endpoint_url=f"http://127.0.0.1:{self._port}", **keys)

    def start(self) -> None:
        """Start the server, again on its port, with all that it knew."""
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()
        _, self._port = self._server.get_host_and_port()
        if not self._plain:
            self._make()
            for name in _PATCHED:
                self._plain[name] = getattr(SQSBackend, name)
                setattr(SQSBackend, name, self._patched(name))

    def kill(self) -> None:
        """Be away."""
        self._server.stop()

    def has_kept(self, queue: str) -> bool:
        """Tell that the queue survives: SQS's always do."""
        return True

    def remove(self) -> None:
        """End, and leave moto as it was."""
        self._server.stop()
        for name, plain in self._plain.items():
            setattr(SQSBackend, name, plain)
        sqs_backends.reset()

    def refuse(self, call: str, times: int) -> None:
        """Let a call fail so many times, whatever the share."""
        self._refused[call] = times

    def carry_out_unheard(self, call: str) -> None:
        """Let a call be carried out next time, and its answer be lost."""
        self._unheard.add(call)

    def texts(self, queue: str) -> list[str]:
        """Return the bodies of all messages in a queue, seen or not."""
        return [one.body for one in self._backend.get_queue(queue)._messages]

    def queues(self) -> set[str]:
        """Return the names of all queues."""
        return set(self._backend.queues)

    @property
    def _backend(self) -> SQSBackend:
        return sqs_backends[ACCOUNT][REGION]

    def _make(self) -> None:
        client = self.client()
        client.create_queue(QueueName=f"{self._queue}-dead")
        redrive = {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self._queue}-dead",
            "maxReceiveCount": self._tries,
        }
        attributes = {"VisibilityTimeout": str(self._visibility), "RedrivePolicy": json.dumps(redrive)}
        client.create_queue(QueueName=self._queue, Attributes=attributes)

    def _patched(self, name: str) -> Any:
        hostile = getattr(self, f"_{name}", None)

        def call(backend: SQSBackend, *args: Any, **given: Any) -> Any:
            with self._lock:
                if self._refused[name] or self._dice.random() < self.share:
                    self._refused[name] = max(0, self._refused[name] - 1)
                    raise _BusyError
                if name in self._unheard:
                    self._unheard.remove(name)
                    self._plain[name](backend, *args, **given)
                    raise _BusyError
                if hostile is None:
                    return self._plain[name](backend, *args, **given)
            return hostile(backend, *args, **given)

        return call

    def _receive_message(
        self, backend: SQSBackend, queue_name: str, count: int, wait: int, visibility: int, names: Any = None
    ) -> list[Message]:
        end = time.monotonic() + wait
        while True:
            with self._lock:
                queue = backend.get_queue(queue_name)
                self._dice.shuffle(queue._messages)
                fewer = self._dice.randint(1, count)
                got: list[Message] = self._plain["receive_message"](
                    backend, queue_name, fewer, 0, visibility, names
                )
                for one in queue._messages:
                    if not one.visible and self._dice.random() < self.share / 10:
                        one.change_visibility(0)
                        queue.pending_messages.discard(one)
                        self.twice += 1
            if got or time.monotonic() > end:
                return got
            time.sleep(0.02)

    def _send_message_batch(self, backend: SQSBackend, queue_name: str, entries: Mapping[str, Any]) -> Any:
        with self._lock:
            kept = {key: one for key, one in entries.items() if self._dice.random() >= self.share}
            sent, failed = self._plain["send_message_batch"](backend, queue_name, kept) if kept else ([], [])
        lost = [{"Id": one["Id"], **_BUSY} for key, one in entries.items() if key not in kept]
        return sent, [*failed, *lost]

    def _delete_message_batch(self, backend: SQSBackend, queue_name: str, receipts: list[Any]) -> Any:
        done, failed = [], []
        with self._lock:
            newest = {one.receipt_handle for one in backend.get_queue(queue_name)._messages}
            for one in receipts:
                if self._dice.random() < self.share:
                    failed.append({"Id": one["Id"], **_BUSY})
                    continue
                if one["ReceiptHandle"] in newest:
                    backend.delete_message(queue_name, one["ReceiptHandle"])
                done.append(one["Id"])
        return done, failed

    def _change_message_visibility_batch(
        self, backend: SQSBackend, queue_name: str, entries: list[Any]
    ) -> Any:
        done, failed = [], []
        with self._lock:
            held = {one.receipt_handle: one for one in backend.get_queue(queue_name)._messages}
            for one in entries:
                message = held.get(one["ReceiptHandle"])
                if self._dice.random() < self.share:
                    failed.append({"Id": one["Id"], **_BUSY})
                elif message is None or message.visible:
                    failed.append({"Id": one["Id"], **_NOT_HIDDEN})
                else:
                    done += self._plain["change_message_visibility_batch"](backend, queue_name, [one])[0]
        return done, failed
