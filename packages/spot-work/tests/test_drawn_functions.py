"""10,000 drawn functions, of which some misbehave: each request is settled once, neighbours are untouched.

A quarter runs each time, all with ``make soak``.
"""

from __future__ import annotations

import asyncio
import decimal
import random
import signal
from array import array
from collections import Counter, UserDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from spot_work import Batch, Overflow, Requeue
from spot_work.queue.consumer import Ack, Delivery
from support.consumers import FakeConsumer, request

DRAWN: Final = 10_000
PARTS: Final = 20


class OddError(Exception):
    """Each of its methods raises what it was made with."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error

    __repr__ = __reduce__ = __str__  # type: ignore[assignment]


class Odd:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def _fail(self, *_: object) -> Any:
        raise self.error

    __len__ = __iter__ = __str__ = __repr__ = __hash__ = __bool__ = __eq__ = _fail  # type: ignore[assignment]
    __float__ = __getitem__ = keys = items = __reduce__ = _fail  # type: ignore[assignment]


class OddList(list[Any]):
    def __iter__(self) -> Any:
        raise KeyboardInterrupt


class OddText(str):
    def encode(self, *_: object) -> Any:
        raise GeneratorExit


class Count(int):
    def __repr__(self) -> str:
        raise OSError


ERRORS: Final[Sequence[type[BaseException]]] = (
    *(SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, RecursionError),
    *(MemoryError, OSError, ValueError, TypeError, AssertionError, StopAsyncIteration, UnicodeError),
)


def nested(kind: type[Any], depth: int) -> Any:
    value: Any = kind()
    for _ in range(depth):
        value = [value] if kind is list else {"x": value}
    return value


def circular(kind: type[Any]) -> Any:
    value = kind()
    value.append(value) if isinstance(value, list) else value.update(x=value)
    return value


def draw_value(draw: random.Random) -> Any:
    """Return a result; most of them cannot be sent."""
    odd = Odd(draw.choice(ERRORS))
    values: Sequence[Callable[[], Any]] = (
        *(lambda: None, lambda: float("nan"), lambda: float("-inf"), lambda: 2 ** draw.randrange(20_000)),
        *(lambda: odd, lambda: [odd], lambda: {"x": odd}, lambda: {1: 2}, lambda: {(1, 2): 3}, lambda: {1}),
        *(lambda: OddList([1]), lambda: OddText("x"), lambda: Count(3), lambda: "\udce9", lambda: b"\xff"),
        *(lambda: circular(draw.choice((list, dict))), lambda: nested(draw.choice((list, dict)), 5000)),
        *(lambda: (x for x in (1, 2)), lambda: memoryview(b"x"), lambda: bytearray(b"x"), lambda: deque([1])),
        *(lambda: array("d", [1.0]), lambda: UserDict(x=1), lambda: decimal.Decimal(1), lambda: object),
        *(lambda: draw.choice(ERRORS), lambda: draw.choice(ERRORS)("returned"), lambda: OddError(OSError)),
        *(lambda: Requeue(), lambda: [1, 2], lambda: [], lambda: "text", lambda: range(3), lambda: print),
    )
    return draw.choice(values)()


def draw_function(draw: random.Random) -> Callable[[], Any]:
    """Return what a function does with its request: it raises, or returns something."""
    if draw.random() < 0.6:
        value = draw_value(draw)
        return lambda: value

    def raises() -> Any:
        kind = draw.choice(ERRORS)
        raise draw.choice((kind("x"), OddError(kind), BaseExceptionGroup("g", [kind("x")]), Requeue()))

    return raises


class CountingConsumer(FakeConsumer):
    """Counts how often each request is settled."""

    def __init__(self, *requests: Any) -> None:
        super().__init__(*requests)
        self.settled: Counter[str] = Counter()

    def ack(self, acks: Sequence[Ack]) -> None:
        self.settled.update(ack.delivery.request.id for ack in acks)
        super().ack(acks)

    def requeue(self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0) -> None:
        self.settled.update(delivery.request.id for delivery in deliveries)
        super().requeue(deliveries, delay_seconds)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.settled[delivery.request.id] += 1
        super().dead_letter(delivery, reason)


def play(draw: random.Random, functions: int) -> None:
    """Run one worker with so many drawn functions among good requests; raise ``AssertionError``."""
    way = draw.choice(("single", "batch", "whole batch", "overflow"))
    drawn = {f"bad-{number}": draw_function(draw) for number in range(functions)}
    names = [*drawn, *(f"good-{number}" for number in range(functions // 2 + 1))]
    draw.shuffle(names)
    age = 60.0 if way == "overflow" else 0.0
    has_reply = {name: name not in drawn or draw.random() < 0.8 for name in names}
    consumer = CountingConsumer(*(request(n, n, age=age, has_reply_to=has_reply[n]) for n in names))

    def one(name: str) -> Any:
        return drawn[name]() if name in drawn else name

    def batch(values: list[str]) -> Any:
        if way == "whole batch" and len(values) > 1:
            draw_function(draw)()  # the batch fails, or not
            return draw_value(draw) if draw.random() < 0.5 else [one(value) for value in values]
        return [one(value) for value in values]

    if way == "single":
        worker = consumer.run(one)
    elif way == "overflow":
        worker = consumer.run(one, overflow=Overflow(one, after_seconds=30.0))
    else:
        worker = consumer.run(batch, Batch(draw.choice((2, 7, 16)), 0.0))
    assert set(consumer.settled) == set(names), (way, set(names) - set(consumer.settled))
    assert set(consumer.settled.values()) == {1}, (way, consumer.settled.most_common(2))
    assert worker.completed_count == len(names) - len(consumer.requeued)
    for name in set(consumer.replies) - set(drawn):
        # A batch whose results are as many as its requests is what the function says it is.
        assert way == "whole batch" or consumer.replies[name].value == name, (way, name)
    if way != "whole batch":
        requeued = (
            set(consumer.requeued) if way == "batch" else set()
        )  # a batch that raises it goes back whole
        assert set(names) - set(drawn) <= set(consumer.replies) | requeued, way
    for name, reply in consumer.replies.items():
        assert isinstance(reply.error, str), (way, name)


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=() if n % 4 == 0 else pytest.mark.soak) for n in range(PARTS)]
)
def test_drawn_functions_settle_each_request_once(part: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "spot_work")
    draw, left = random.Random(part), DRAWN // PARTS
    before = signal.signal(signal.SIGINT, lambda *_: None)  # as `serve`: else Ctrl-C ends the worker
    try:
        while left > 0:
            functions = min(left, draw.randrange(1, 12))
            play(draw, functions)
            left -= functions
    finally:
        signal.signal(signal.SIGINT, before)
