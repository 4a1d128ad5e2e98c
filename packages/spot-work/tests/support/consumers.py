"""A consumer of a queue that is in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from spot_work import Request, Worker
from spot_work.queue.consumer import Ack, Delivery
from spot_work.request import message
from spot_work.worker import _POLL_SECONDS


class FakeConsumer:
    """Delivers its requests, then drains the worker."""

    def __init__(self, *requests: Request, drains_within_a_batch: bool = False) -> None:
        self._drains = drains_within_a_batch
        self.waiting = [Delivery(request, number) for number, request in enumerate(requests)]
        self.replies: dict[str, message.Reply] = {}
        self.requeued: list[str] = []
        self.dead_letters: dict[str, str] = {}
        self.requeue_delays: list[float] = []
        self.held_replies, self.stopped_reason = 0, ""
        self.calls: list[str] = []
        self.prefetches: list[int] = []
        self.is_connected = threading.Event()
        self.is_connected.set()
        self.worker: Worker | None = None

    waiting_count = 0
    max_batches_ahead = 3

    def hand_back(self) -> None:
        self.calls.append("hand back")

    def set_prefetch(self, count: int) -> None:
        self.prefetches.append(count)

    def receive(self, timeout: float) -> Delivery | None:
        assert timeout <= 1.0  # else a drain waits for it
        if self.waiting:
            return self.waiting.pop(0)
        assert self.worker is not None
        if timeout == _POLL_SECONDS or self._drains:
            self.worker.drain()
        return None

    def ack(self, acks: Sequence[Ack]) -> None:
        for ack in acks:
            assert ack.reply is not None
            self.replies[ack.delivery.request.id] = message.read_reply(ack.reply)

    def requeue(self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0) -> None:
        self.requeued += [delivery.request.id for delivery in deliveries]
        self.requeue_delays.append(delay_seconds)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.dead_letters[delivery.request.id] = reason

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self, timeout: float) -> None:
        self.calls.append("close")

    def run(self, function: Callable[[Any], Any], *arguments: Any, **options: Any) -> Worker:
        self.worker = Worker(self, function, *arguments, **options)  # type: ignore[arg-type]
        self.worker.run()
        return self.worker


def request(name: str, value: Any = None, *, age: float = 0.0, has_reply_to: bool = True) -> Request:
    reply_to = "replies" if has_reply_to else ""
    return Request(name, name if value is None else value, reply_to=reply_to, sent_at=time.time() - age)


def reply_values(consumer: FakeConsumer) -> dict[str, Any]:
    return {name: reply.value for name, reply in consumer.replies.items()}
