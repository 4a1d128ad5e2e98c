"""How many requests a worker may have unacknowledged: more while replies wait for the broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from spot_work.rabbitmq.outbox import MAX_MESSAGES

_IDLE_SECONDS: Final = 0.05
"""Time after which consumers that do not have as much as they may are on an empty queue."""


class Window:
    """The consumers of a channel: one for each time that the window grew; for the link's thread.

    A prefetch count belongs to a consumer for good (RabbitMQ guide, "Consumer Prefetch"; one for a whole
    channel is not for quorum queues, and refused since 4.3). To cancel a consumer returns what is on its way
    to it, which counts as a failure of each request (rabbitmq-server, ``rabbit_fifo_client``). So a window
    grows by another consumer, and shrinks by its newest ones when nothing is: when all have as much as they
    may.

    Args:
        queue: name of the queue.
        prefetch: unacknowledged requests.
        on_request: callback of each delivery.
    """

    def __init__(self, queue: str, prefetch: int, on_request: Callable[..., None]) -> None:
        self._queue = queue
        self.prefetch = prefetch
        """Unacknowledged requests from the next `resize` on; 0: there is no consumer."""
        self._on_request = on_request
        self._consumers: list[tuple[str, int]] = []
        """Tags and prefetch counts."""
        self._size = 0
        self._unsettled = 0
        self._is_shrinking = False
        self._is_opening = False
        """Whether the newest consumer is not confirmed: until then a cancellation would overtake it."""

    def reset(self) -> int:
        """Forget the consumers of the channel before; return the prefetch count of the next one."""
        self._consumers, self._size, self._unsettled = [], 0, 0
        self._is_shrinking = self._is_opening = False
        return self.prefetch

    def open(self, channel: Any, callback: Any) -> None:
        """Start to consume on a new channel."""
        self._consume(channel, self.prefetch, callback)

    def resize(self, channel: Any) -> None:
        """Have consumers for as many requests as were set last."""
        if not self.prefetch or self._size < self.prefetch or self._unsettled >= self._size:
            self._resize(channel)
        elif self._size > self.prefetch and not self._is_shrinking:
            self._is_shrinking = True
            channel.connection.ioloop.call_later(_IDLE_SECONDS, partial(self._resize, channel))

    def extend(self, replies: int, channel: Any) -> None:
        """Take more requests if all are settled but for their ``replies``, which wait for the broker."""
        if (
            self._consumers
            and not self._is_opening
            and self._unsettled >= self._size
            and self._size < MAX_MESSAGES
        ):
            self._consume(channel, max(self.prefetch, replies // 4), None)

    def on_delivery(self, channel: Any) -> None:
        """Count a delivery."""
        self._unsettled += 1
        if self._is_shrinking and self._unsettled >= self._size:
            self._resize(channel)

    def on_settled(self, channel: Any, replies: int) -> None:
        """Count a settled request, and end an extension once few ``replies`` wait."""
        self._unsettled -= 1
        if self._size > self.prefetch > replies:
            self.resize(channel)

    def _resize(self, channel: Any) -> None:
        self._is_shrinking = False
        if self._is_opening or not channel.is_open:
            return
        while self._size > self.prefetch:
            tag, count = self._consumers.pop()
            channel.cancel(tag)
            self._size -= count
        if self._size < self.prefetch:
            self._consume(channel, self.prefetch - self._size, None)

    def _consume(self, channel: Any, prefetch: int, callback: Any) -> None:
        def on_confirmed(frame: Any) -> None:
            self._is_opening = False
            if callback is not None:
                callback(frame)
            self.resize(channel)

        self._is_opening = True
        channel.basic_qos(prefetch_count=prefetch)
        tag = channel.basic_consume(self._queue, self._on_request, callback=on_confirmed)
        self._consumers.append((tag, prefetch))
        self._size += prefetch
