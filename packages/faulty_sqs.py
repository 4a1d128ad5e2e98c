"""A moto server that injects the faults that AWS documents for SQS; other processes can reach it.

A message is delivered again while it is hidden; messages arrive in any order; a poll returns fewer messages
than are available; calls fail, and batch calls in part; an old receipt handle deletes nothing and reports
success; the visibility timeout of a visible message cannot be changed. moto simulates none of these, and its
queues are not thread-safe.

Source: SQS developer guide, "Amazon SQS at-least-once delivery", "message ordering", "short and long
polling", "visibility timeout"; SQS API reference, ``DeleteMessage``.
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

_TRANSIENT_ERROR: Final = {"SenderFault": False, "Code": "InternalError", "Message": "transient"}
_NOT_IN_FLIGHT: Final = {"SenderFault": True, "Code": "MessageNotInflight", "Message": "visible"}


class _TransientError(SQSException):
    """A transient error after boto3's retries: moto responds with 400, which boto3 does not retry."""

    def __init__(self) -> None:
        super().__init__("ServiceUnavailable", "The request has failed due to a temporary failure")


class FaultySqs:
    """A server with a queue of requests and its dead-letter queue.

    Args:
        share: of calls and of batch entries that fail; a tenth of it: of messages that are delivered twice.
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
        self.duplicates = 0
        """Messages that became visible within their visibility timeout."""
        self._queue, self._tries, self._visibility = queue, tries, visibility
        self._random, self._lock = random.Random(seed), threading.RLock()
        self._originals: dict[str, Any] = {}
        self._failures: Counter[str] = Counter()
        self._lost_responses: set[str] = set()
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def url(self) -> str:
        """The URL for workers and clients."""
        return f"sqs://{REGION}/{ACCOUNT}"

    @property
    def environment(self) -> dict[str, str]:
        """The server's endpoint and credentials, as environment variables of boto3."""
        return {**_KEYS, "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{self._port}"}

    def client(self) -> Any:
        """Return a boto3 client."""
        return boto3.client(
            "sqs",
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{self._port}",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def start(self) -> None:
        """Start the server; after `kill` on the same port and with the same queues."""
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()
        _, self._port = self._server.get_host_and_port()
        if not self._originals:
            self._create_queues()
            for name in _PATCHED:
                self._originals[name] = getattr(SQSBackend, name)
                setattr(SQSBackend, name, self._patched(name))

    def kill(self) -> None:
        """Stop the server."""
        self._server.stop()

    def has_queue(self, queue: str) -> bool:
        """Return whether the queue survives `kill`: SQS queues always do."""
        return True

    def remove(self) -> None:
        """Stop the server and restore moto."""
        self._server.stop()
        for name, original in self._originals.items():
            setattr(SQSBackend, name, original)
        sqs_backends.reset()

    def fail_next(self, call: str, times: int) -> None:
        """Make the next calls fail, independently of ``share``."""
        self._failures[call] = times

    def lose_response(self, call: str) -> None:
        """Execute the next call, but lose its response."""
        self._lost_responses.add(call)

    def texts(self, queue: str) -> list[str]:
        """Return the bodies of all messages in a queue, visible or not."""
        return [message.body for message in self._backend.get_queue(queue)._messages]

    def queues(self) -> set[str]:
        """Return the names of all queues."""
        return set(self._backend.queues)

    @property
    def _backend(self) -> SQSBackend:
        return sqs_backends[ACCOUNT][REGION]

    def _create_queues(self) -> None:
        client = self.client()
        client.create_queue(QueueName=f"{self._queue}-dead")
        redrive = {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self._queue}-dead",
            "maxReceiveCount": self._tries,
        }
        attributes = {"VisibilityTimeout": str(self._visibility), "RedrivePolicy": json.dumps(redrive)}
        client.create_queue(QueueName=self._queue, Attributes=attributes)

    def _patched(self, name: str) -> Any:
        faulty = getattr(self, f"_{name}", None)

        def call(backend: SQSBackend, *args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self._failures[name] or self._random.random() < self.share:
                    self._failures[name] = max(0, self._failures[name] - 1)
                    raise _TransientError
                if name in self._lost_responses:
                    self._lost_responses.remove(name)
                    self._originals[name](backend, *args, **kwargs)
                    raise _TransientError
                if faulty is None:
                    return self._originals[name](backend, *args, **kwargs)
            return faulty(backend, *args, **kwargs)

        return call

    def _receive_message(
        self, backend: SQSBackend, queue_name: str, count: int, wait: int, visibility: int, names: Any = None
    ) -> list[Message]:
        end = time.monotonic() + wait
        while True:
            with self._lock:
                queue = backend.get_queue(queue_name)
                self._random.shuffle(queue._messages)
                max_count = self._random.randint(1, count)
                messages: list[Message] = self._originals["receive_message"](
                    backend, queue_name, max_count, 0, visibility, names
                )
                for message in queue._messages:
                    if not message.visible and self._random.random() < self.share / 10:
                        message.change_visibility(0)
                        queue.pending_messages.discard(message)
                        self.duplicates += 1
            if messages or time.monotonic() > end:
                return messages
            time.sleep(0.02)

    def _send_message_batch(self, backend: SQSBackend, queue_name: str, entries: Mapping[str, Any]) -> Any:
        with self._lock:
            accepted = {key: entry for key, entry in entries.items() if self._random.random() >= self.share}
            sent, failed = (
                self._originals["send_message_batch"](backend, queue_name, accepted) if accepted else ([], [])
            )
        rejected = [
            {"Id": entry["Id"], **_TRANSIENT_ERROR} for key, entry in entries.items() if key not in accepted
        ]
        return sent, [*failed, *rejected]

    def _delete_message_batch(self, backend: SQSBackend, queue_name: str, receipts: list[Any]) -> Any:
        done, failed = [], []
        with self._lock:
            newest = {message.receipt_handle for message in backend.get_queue(queue_name)._messages}
            for entry in receipts:
                if self._random.random() < self.share:
                    failed.append({"Id": entry["Id"], **_TRANSIENT_ERROR})
                    continue
                if entry["ReceiptHandle"] in newest:
                    backend.delete_message(queue_name, entry["ReceiptHandle"])
                done.append(entry["Id"])
        return done, failed

    def _change_message_visibility_batch(
        self, backend: SQSBackend, queue_name: str, entries: list[Any]
    ) -> Any:
        done, failed = [], []
        with self._lock:
            messages = {
                message.receipt_handle: message for message in backend.get_queue(queue_name)._messages
            }
            for entry in entries:
                message = messages.get(entry["ReceiptHandle"])
                if self._random.random() < self.share:
                    failed.append({"Id": entry["Id"], **_TRANSIENT_ERROR})
                elif message is None or message.visible:
                    failed.append({"Id": entry["Id"], **_NOT_IN_FLIGHT})
                else:
                    done += self._originals["change_message_visibility_batch"](backend, queue_name, [entry])[
                        0
                    ]
        return done, failed
