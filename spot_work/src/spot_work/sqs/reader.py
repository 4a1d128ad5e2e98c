"""The worker's end of a queue of SQS: takes requests, keeps them hidden from others, gives answers."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from spot_work import message
from spot_work.errors import BrokerRefusedError
from spot_work.queue_reader import Said, Source, Taken
from spot_work.queues import Queue
from spot_work.sqs import wire
from spot_work.sqs.address import TROUBLE, Address, is_gone, is_refusal, words
from spot_work.sqs.in_flight import Held, Shelf
from spot_work.sqs.pause import Pause
from spot_work.sqs.settler import Settler

log: Final = logging.getLogger("spot_work")

_POLL_SECONDS: Final = 5
"""Of a long poll. SQS may give messages to one whose caller has gone, so a drain waits for the last."""
_DONE_KEPT: Final = 10_000
"""Of the messages that were answered here so many are remembered: SQS may deliver one again."""
_LEAST_VISIBILITY: Final = 10
"""Seconds. Below, there is no time to extend it."""


class SqsSource(Source):
    """Takes requests from a queue, at most ``prefetch`` at a time, until it is told to stop.

    What is here is hidden from others for the queue's visibility timeout, which is extended at each third of
    it: for 12 hours at most (SQS API, ``ChangeMessageVisibility``).

    Args:
        url: ``sqs://region/account``.
        prefetch: requests that are here and not settled.
        give_up_after: seconds in a row without SQS after which `take` raises.

    Raises:
        ValueError: the address cannot be read, or SQS has no such names.
    """

    def __init__(
        self, url: str, queue_: Queue, prefetch: int, give_up_after: float = 900.0, client: Any = None
    ) -> None:
        self._address = Address.parse(url, queue_.name)
        self._queue = queue_
        self._prefetch = prefetch
        self._give_up_after = give_up_after
        self._client = client or self._address.client()
        self._arrived: queue.SimpleQueue[Taken | None] = queue.SimpleQueue()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._stopped, self._closed = threading.Event(), threading.Event()
        self._failure: Exception | None = None
        self.is_connected = threading.Event()
        """Set once requests could come."""
        self._shelf = Shelf(self._client, queue_.name)
        self._settler = Settler(self._client, self._shelf, give_up_after)
        self._poller = threading.Thread(target=self._live, name="spot-work-poll", daemon=True)
        self._poller.start()

    def take(self, seconds: float) -> Taken | None:
        """Return the next request that is still ours and that somebody still waits for."""
        end = time.monotonic() + seconds
        while True:
            try:
                taken = self._arrived.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if self._failure is not None:
                raise self._failure
            if taken is None or not self._shelf.is_ours(taken.delivery):
                continue
            if not taken.request.has_expired:
                return taken
            self._settler.say([Said(taken)])

    def say(self, answers: Sequence[Said]) -> None:
        """Send answers; a request is deleted once SQS has its answer."""
        for said in answers:
            self._done[said.taken.delivery.id] = None
        while len(self._done) > _DONE_KEPT:
            self._done.popitem(last=False)
        self._settler.say(answers)

    def hand_back(self, taken: Sequence[Taken]) -> None:
        """Let others see requests at once."""
        self._settler.hand_back([one.delivery for one in taken])

    def bury(self, taken: Taken) -> None:
        """Copy a request to the dead-letter queue, and delete it."""
        self._settler.bury(taken.delivery)

    def stop(self) -> None:
        """Receive no more, and hand back what has come and was not taken."""
        self._stopped.set()
        self._shelf.wake()
        self._clear()

    def close(self, seconds: float) -> None:
        """Wait for the last poll, and until all that was said is settled, so many seconds at most; close."""
        end = time.monotonic() + seconds
        self._poller.join(max(end - time.monotonic(), 0.0))
        self._clear()
        self._settler.close(max(end - time.monotonic(), 0.0))
        self._shelf.close()
        self._closed.set()

    def _clear(self) -> None:
        left = []
        while not self._arrived.empty():
            if (one := self._arrived.get()) is not None:
                left.append(one)
        self.hand_back(left)

    def _live(self) -> None:
        pause, url = Pause(), ""
        while not self._stopped.is_set():
            try:
                url = url or self._opened()
                self._receive(url)
                pause.over()
            except BrokerRefusedError as error:
                self._fail(error)
                return
            except TROUBLE as error:
                # One that has worked may have been locked out for a moment: only the first time is final.
                if is_gone(error) or (not url and is_refusal(error)):
                    self._fail(BrokerRefusedError(f"{self._queue.name}: {words(error)}"))
                    return
                if pause.total >= self._give_up_after:
                    lost = f"{self._queue.name}: not reached for {pause.total:.0f} s: {words(error)}"
                    self._fail(ConnectionError(lost))
                    return
                log.warning("%s: %s; again in a moment", self._queue.name, words(error))
                pause.wait(self._stopped)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._arrived.put(None)

    def _opened(self) -> str:
        """Look at the queue, and return its URL."""
        name, url = self._queue.name, self._address.queue_url(self._client, self._queue.name)
        wanted = ["VisibilityTimeout", "RedrivePolicy"]
        given = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=wanted)["Attributes"]
        visibility = int(given["VisibilityTimeout"])
        if visibility < _LEAST_VISIBILITY:
            raise BrokerRefusedError(
                f"{name}: a visibility timeout of {visibility} s, allowed: {_LEAST_VISIBILITY} or more"
            )
        if not given.get("RedrivePolicy"):
            raise BrokerRefusedError(f"{name}: has no dead-letter queue, allowed: queues with one")
        *_, account, dead = json.loads(given["RedrivePolicy"])["deadLetterTargetArn"].split(":")
        answer = self._client.get_queue_url(QueueName=dead, QueueOwnerAWSAccountId=account)
        self._shelf.open(url, visibility)
        self._settler.open(url, answer["QueueUrl"])
        self.is_connected.set()
        log.info("%s: connected", name)
        return url

    def _receive(self, url: str) -> None:
        free = self._prefetch - self._shelf.wait_below(self._prefetch, self._stopped)
        if free <= 0 or self._stopped.is_set():
            return
        answer = self._client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=min(free, wire.MOST_IN_A_CALL),
            WaitTimeSeconds=_POLL_SECONDS,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
            MessageAttributeNames=["All"],
        )
        for received in answer.get("Messages", ()):
            self._on_request(received)

    def _on_request(self, received: dict[str, Any]) -> None:
        held = self._shelf.put(received)
        if held is None:
            return  # the second delivery of one that is here
        if held.id in self._done:
            self._settler.delete([held])
        elif self._stopped.is_set():
            self._settler.hand_back([held])
        else:
            self._read(held)

    def _read(self, held: Held) -> None:
        try:
            got = wire.read(held.received)
            request = message.read_request(got, wire.tries(held.received), time.time())
        except ValueError as error:
            log.error("%s: a request cannot be read: %s", self._queue.name, error)
            self._settler.bury(held)
        else:
            self._arrived.put(Taken(request, held))
