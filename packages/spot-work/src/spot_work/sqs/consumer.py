"""The worker's side of an SQS queue."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from spot_work.errors import BrokerRefusedError
from spot_work.queue import threads
from spot_work.queue.backoff import Backoff
from spot_work.queue.consumer import Ack, Delivery, RequestConsumer
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl, UrlSource
from spot_work.request import message
from spot_work.sqs import wire
from spot_work.sqs.acknowledger import Acknowledger
from spot_work.sqs.address import CALL_ERRORS, NO_DEAD_LETTERS, Address, describe, is_not_found, is_permanent
from spot_work.sqs.in_flight import InFlightMessage, VisibilityExtender

log: Final = logging.getLogger("spot_work")

_POLL_SECONDS: Final = 5
"""Duration of a long poll. A drain waits for the last poll, to which SQS may still deliver messages."""
_MAX_COMPLETED_IDS: Final = 10_000
"""Number of completed messages that a worker remembers, because SQS may deliver them again."""
_MIN_VISIBILITY_SECONDS: Final = 10
"""Minimum visibility timeout of the queue: a shorter one cannot be extended in time."""


class SqsConsumer(RequestConsumer):
    """Receives requests from a queue, with at most ``prefetch`` in flight.

    Extends the visibility timeout of in-flight requests three times per timeout, for 12 hours at most
    (Source: SQS API reference, ``ChangeMessageVisibility``).

    Args:
        url: ``sqs://region/account``.
        prefetch: maximum requests in flight.
        max_outage_seconds: time without SQS after which `receive` raises.
        client: a boto3 client, for tests.
        relay: as for `spot_work.rabbitmq.link.Link`; it extends visibility timeouts. None: a thread does.

    Raises:
        ValueError: the URL cannot be parsed, or the queue's name is invalid.
    """

    max_batches_ahead = 1
    ack_timeout_seconds = 43_200.0  # the visibility timeout's maximum, which extensions do not pass
    stopped_reason = ""  # messages in flight, and so unsent replies, are limited by ``prefetch``

    def __init__(
        self,
        url: BrokerUrl | UrlSource,
        queue_: Queue,
        prefetch: int,
        max_outage_seconds: float = 900.0,
        client: Any = None,
        relay: Callable[[str], int] | None = None,
    ) -> None:
        url = UrlSource.of(url).url
        self._address = Address.parse(url, queue_.name)
        self._queue = queue_
        self._prefetch = prefetch
        self._max_outage_seconds = max_outage_seconds
        self._client = client or self._address.client()
        self._prefetched: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._completed_ids: OrderedDict[str, None] = OrderedDict()
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self.is_connected = threading.Event()
        self._extender = VisibilityExtender(
            self._client, queue_.name, self._fail, None if relay is None else partial(relay, url)
        )
        self._acknowledger = Acknowledger(self._client, self._extender, max_outage_seconds, self._fail)
        self._acknowledger.on_completed = self._on_completed
        self._poller = threads.start("spot-work-poll", self._poll, self._fail)

    @property
    def waiting_count(self) -> int:
        return self._prefetched.qsize()

    def receive(self, timeout: float) -> Delivery | None:
        end = time.monotonic() + timeout
        while True:
            try:
                delivery = self._prefetched.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if self._failure is not None:
                raise self._failure
            if delivery is not None and self._extender.is_hidden(delivery.handle):
                return delivery

    def set_prefetch(self, count: int) -> None:
        """Have at most ``count`` requests in flight from now on; a poll that has begun may deliver more."""
        self._prefetch = count
        self._extender.notify()

    def hand_back(self) -> None:
        """Do nothing: each delivery counts towards the redrive policy's ``maxReceiveCount``."""

    def ack(self, acks: Sequence[Ack]) -> None:
        self._acknowledger.ack(acks)

    def _on_completed(self, id_: str) -> None:
        self._completed_ids[id_] = None
        if len(self._completed_ids) > _MAX_COMPLETED_IDS:
            self._completed_ids.popitem(last=False)

    @property
    def held_replies(self) -> int:
        """Number of jobs that SQS has not confirmed."""
        return self._acknowledger.open_jobs

    def requeue(self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0) -> None:
        delay = 0 if self._stopped.is_set() else round(delay_seconds)
        self._acknowledger.requeue([delivery.handle for delivery in deliveries], delay)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self._acknowledger.dead_letter(delivery.handle, reason)

    def stop(self) -> None:
        self._stopped.set()
        self._extender.notify()
        self._requeue_prefetched()

    def close(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        self._poller.join(max(end - time.monotonic(), 0.0))
        self._requeue_prefetched()
        self._acknowledger.close(max(end - time.monotonic(), 0.0))
        self._extender.close()

    def _requeue_prefetched(self) -> None:
        deliveries = []
        while not self._prefetched.empty():
            if (delivery := self._prefetched.get()) is not None:
                deliveries.append(delivery)
        self.requeue(deliveries)

    def _poll(self) -> None:
        backoff, url = Backoff(), ""
        while not self._stopped.is_set():
            try:
                url = url or self._open()
                self._receive_batch(url)
                backoff.reset()
            except BrokerRefusedError as error:
                self._fail(error)
                return
            except CALL_ERRORS as error:
                # After a success a denied call may be transient; before the first success it is permanent.
                if is_not_found(error) or (not url and is_permanent(error)):
                    self._fail(BrokerRefusedError(f"{self._queue.name}: {describe(error)}"))
                    return
                if (outage := backoff.total_seconds) >= self._max_outage_seconds:
                    error_text = f"{self._queue.name}: unreachable for {outage:.0f} s: {describe(error)}"
                    self._fail(ConnectionError(error_text))
                    return
                log.warning("%s: %s; retrying", self._queue.name, describe(error))
                backoff.wait(self._stopped)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._prefetched.put(None)

    def _open(self) -> str:
        """Read the queue's attributes, start the helper threads and return the queue's URL."""
        name, url = self._queue.name, self._address.queue_url(self._client, self._queue.name)
        response = self._client.get_queue_attributes(
            QueueUrl=url, AttributeNames=["VisibilityTimeout", "RedrivePolicy"]
        )
        attributes = response["Attributes"]
        visibility_seconds = int(attributes["VisibilityTimeout"])
        if visibility_seconds < _MIN_VISIBILITY_SECONDS:
            raise BrokerRefusedError(
                f"{name}: the visibility timeout must be {_MIN_VISIBILITY_SECONDS} s or more, not "
                f"{visibility_seconds} s"
            )
        if not attributes.get("RedrivePolicy"):
            raise BrokerRefusedError(f"{name}: {NO_DEAD_LETTERS}")
        dead_letter_url = self._address.dead_letter_url(self._client, attributes["RedrivePolicy"])
        self._extender.open(url, visibility_seconds)
        self._acknowledger.open(url, dead_letter_url)
        self.is_connected.set()
        log.info("%s: connected", name)
        return url

    def _receive_batch(self, url: str) -> None:
        in_flight = self._extender.wait_below(lambda: self._prefetch, self._stopped)
        capacity = self._prefetch - in_flight
        if capacity <= 0 or self._stopped.is_set():
            return
        response = self._client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=min(capacity, wire.MAX_BATCH_ENTRIES),
            WaitTimeSeconds=_POLL_SECONDS,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
            MessageAttributeNames=["All"],
        )
        for received in response.get("Messages", ()):
            self._on_message(received)

    def _on_message(self, received: dict[str, Any]) -> None:
        in_flight = self._extender.add(received)
        if in_flight is None:
            return  # a second delivery of a request that is in flight here
        if in_flight.id in self._completed_ids:
            self._acknowledger.delete([in_flight])
        elif self._stopped.is_set():
            self._acknowledger.requeue([in_flight])
        else:
            self._prefetch_request(in_flight)

    def _prefetch_request(self, in_flight: InFlightMessage) -> None:
        try:
            received = wire.read(in_flight.received)
            delivery_count = wire.delivery_count(in_flight.received)
            request = message.read_request(received, delivery_count)
        except Exception as error:  # whatever another sender may send ends here
            log.error("%s: malformed request: %s", self._queue.name, error)
            self._acknowledger.dead_letter(in_flight, f"malformed: {error}")
        else:
            self._prefetched.put(Delivery(request, in_flight, received))
