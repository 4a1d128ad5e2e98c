"""A window grows by another consumer; it shrinks by its newest ones, with nothing on its way to them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from spot_work.rabbitmq.outbox import MAX_MESSAGES
from spot_work.rabbitmq.window import Window


class Broker:
    """A channel that counts its consumers, and the time after which an idle one is cancelled."""

    is_open = True

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.unconfirmed: list[Callable[[Any], None]] = []
        self.later: list[Callable[[], None]] = []
        self.connection = SimpleNamespace(
            ioloop=SimpleNamespace(call_later=lambda _, call: self.later.append(call))
        )

    def basic_qos(self, *, prefetch_count: int) -> None:
        self.calls.append(prefetch_count)

    def basic_consume(self, queue: str, on_message: Any, callback: Any) -> str:
        self.unconfirmed.append(callback)
        return f"consumer of {self.calls[-1]}"

    def confirm(self) -> None:
        while self.unconfirmed:
            self.unconfirmed.pop()(None)

    def cancel(self, tag: str) -> None:
        self.calls.append(tag)


def window(broker: Broker, *prefetches: int) -> Window:
    made = Window("queue", prefetches[0], lambda *_: None)
    made.reset()
    made.open(broker, None)
    for prefetch in prefetches[1:]:
        broker.confirm()
        made.prefetch = prefetch
        made.resize(broker)
    broker.confirm()
    return made


def test_it_grows_without_cancelling() -> None:
    broker = Broker()
    window(broker, 1, 2, 16, 16)
    assert broker.calls == [1, 1, 14]


def test_it_shrinks_when_all_consumers_have_as_much_as_they_may() -> None:
    broker = Broker()
    shrunk = window(broker, 2, 16)
    for _ in range(15):
        shrunk.on_delivery(broker)
    shrunk.prefetch = 2
    shrunk.resize(broker)
    assert broker.calls == [2, 14]
    shrunk.on_delivery(broker)
    assert broker.calls == [2, 14, "consumer of 14"]
    for later in broker.later:
        later()
    assert broker.calls == [2, 14, "consumer of 14"]


def test_it_does_not_shrink_while_a_request_may_come_for_a_settled_one() -> None:
    broker = Broker()
    shrunk = window(broker, 2, 16)
    for _ in range(16):
        shrunk.on_delivery(broker)
    shrunk.on_settled(broker, 0)
    shrunk.prefetch = 2
    shrunk.resize(broker)
    assert broker.calls == [2, 14]


def test_it_shrinks_after_a_moment_on_an_empty_queue() -> None:
    broker = Broker()
    window(broker, 2, 16, 2)
    assert broker.calls == [2, 14]
    [later] = broker.later
    later()
    assert broker.calls == [2, 14, "consumer of 14"]


def test_nothing_is_delivered_from_now_on() -> None:
    broker = Broker()
    window(broker, 2, 16, 0, 2)
    assert broker.calls == [2, 14, "consumer of 14", "consumer of 2", 2]


def test_a_consumer_is_not_cancelled_before_it_is_confirmed() -> None:
    broker = Broker()
    opening = window(broker, 2, 0)
    opening.prefetch = 4
    opening.resize(broker)
    opening.prefetch = 0
    opening.resize(broker)
    assert broker.calls == [2, "consumer of 2", 4]
    broker.confirm()
    assert broker.calls[-1] == "consumer of 4"


def test_more_is_taken_while_replies_wait() -> None:
    broker = Broker()
    extended = window(broker, 4)
    for _ in range(4):
        extended.on_delivery(broker)
    extended.extend(40, broker)
    broker.confirm()
    extended.extend(40, broker)  # not all is delivered
    assert broker.calls == [4, 10]
    for _ in range(2):
        extended.on_settled(broker, 3)
    for later in broker.later:
        later()
    assert broker.calls == [4, 10, "consumer of 10"]


def test_no_more_is_taken_than_replies_may_wait() -> None:
    broker = Broker()
    full = window(broker, MAX_MESSAGES)
    for _ in range(MAX_MESSAGES):
        full.on_delivery(broker)
    full.extend(MAX_MESSAGES, broker)
    assert broker.calls == [MAX_MESSAGES]
