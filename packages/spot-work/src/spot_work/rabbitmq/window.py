"""How many requests a worker may have unacknowledged: more while replies wait for the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spot_work.rabbitmq.outbox import MAX_MESSAGES


class Window:
    """The consumers of a channel: one, and more while the broker takes no replies; for the link's thread.

    A prefetch count belongs to a consumer for good, so a window grows by another consumer.

    Args:
        queue: name of the queue.
        prefetch: unacknowledged requests of the first consumer. RabbitMQ applies a change to new consumers
            only ("Consumer Prefetch").
        on_request: callback of each delivery.
    """

    def __init__(self, queue: str, prefetch: int, on_request: Callable[..., None]) -> None:
        self._queue = queue
        self.prefetch = prefetch
        """Unacknowledged requests of the first consumer from the next `apply` on; 0: there is none."""
        self._applied = prefetch
        self._on_request = on_request
        self._tags: list[str] = []
        self._size = 0
        self._unsettled = 0

    def reset(self) -> int:
        """Forget the consumers of the channel before; return the prefetch count of the next one."""
        self._tags, self._size, self._unsettled = [], 0, 0
        self._applied = self.prefetch
        return self._applied

    def open(self, channel: Any, callback: Any) -> None:
        """Start to consume on a new channel."""
        self._consume(channel, self._applied, callback)

    def apply(self, channel: Any) -> None:
        """Have the first consumer with the prefetch count that was set last."""
        if self._applied == self.prefetch:
            return
        self._cancel(channel, self._tags)
        self._tags, self._size, self._applied = [], 0, self.prefetch
        if self._applied:
            self._consume(channel, self._applied, None)

    def extend(self, replies: int, channel: Any) -> None:
        """Take more requests if all are settled but for their ``replies``, which wait for the broker."""
        if self._tags and self._unsettled >= self._size and self._size < MAX_MESSAGES:
            self._consume(channel, max(self._applied, replies // 4), None)

    def on_delivery(self) -> None:
        """Count a delivery."""
        self._unsettled += 1

    def on_settled(self, channel: Any, replies: int) -> None:
        """Count a settled request, and end an extension once few ``replies`` wait."""
        self._unsettled -= 1
        if len(self._tags) > 1 and replies < self._applied:
            self._cancel(channel, self._tags[1:])
            del self._tags[1:]
            self._size = self._applied

    def cancel(self, channel: Any) -> None:
        """Take no more requests."""
        self._cancel(channel, self._tags)
        self._tags, self.prefetch, self._applied = [], 0, 0

    def _cancel(self, channel: Any, tags: list[str]) -> None:
        for tag in tags:
            channel.basic_cancel(tag, callback=lambda _: None)  # without a callback pika keeps the tag

    def _consume(self, channel: Any, prefetch: int, callback: Any) -> None:
        channel.basic_qos(prefetch_count=prefetch)
        self._tags.append(channel.basic_consume(self._queue, self._on_request, callback=callback))
        self._size += prefetch
