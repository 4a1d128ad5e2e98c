"""The requests that a worker has in work or has settled, which the broker may deliver to it again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from spot_work.queue.consumer import Delivery

_MAX_SETTLED: Final = 10_000
"""Settled requests that a worker remembers."""
_Key = tuple[str, str]


class SettledRequests:
    """Acknowledges and does not run what comes back to this worker; safe to use from many threads.

    An acknowledgement is lost with its channel: with the connection, or if a function takes longer than the
    broker's ``consumer_timeout``. Only messages of this package's clients are compared: other ids may repeat.
    """

    def __init__(self) -> None:
        self._in_work: dict[_Key, tuple[Delivery, Delivery]] = {}
        """By request: the delivery that is run, and the newest one, which is to be acknowledged."""
        self._settled: OrderedDict[_Key, None] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, delivery: Delivery) -> bool:
        """Return whether this is a repetition of a request that was settled here."""
        return delivery.request.is_repeat and _key(delivery) in self._settled

    def begin(self, delivery: Delivery) -> bool:
        """Return whether to run a request: not one that is in work, of a channel that is closed."""
        if (key := _key(delivery)) is None:
            return True
        with self._lock:
            run, newest = self._in_work.get(key, (delivery, delivery))
            if newest is delivery or not newest.handle.channel.is_open:
                self._in_work[key] = run, delivery
            return run is delivery or newest.handle.channel.is_open

    def end(self, delivery: Delivery, *, is_settled: bool = False) -> Delivery:
        """Return the delivery to acknowledge or to return for one that was run."""
        if (key := _key(delivery)) is None:
            return delivery
        with self._lock:
            run, newest = self._in_work.get(key, (None, delivery))
            if run is delivery:
                del self._in_work[key]
            if is_settled:
                self._settled[key] = None
                if len(self._settled) > _MAX_SETTLED:
                    self._settled.popitem(last=False)
        is_again = run is delivery and newest is not delivery
        return replace(delivery, handle=newest.handle) if is_again else delivery


def _key(delivery: Delivery) -> _Key | None:
    request = delivery.request
    return None if request.sent_at is None else (request.id, request.reply_to)
