"""Whatever a function returns or raises: each request is settled once, and the worker goes on."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from spot_work import Batch, Overflow, Requeue, Worker
from spot_work.agent import Agent
from spot_work.worker import _handle
from support.consumers import FakeConsumer, request


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Unreadable(dict[str, int]):
    def items(self) -> NoReturn:
        raise KeyboardInterrupt

    __iter__ = keys = items  # type: ignore[assignment]


class Endless(list[int]):
    def __len__(self) -> NoReturn:
        raise OSError("a closed file")

    __iter__ = __len__  # type: ignore[assignment]


def circular(_: object) -> object:
    value: list[object] = []
    value.append(value)
    return value


def deep(_: object) -> object:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    return value


def raising(error: BaseException) -> Callable[[object], NoReturn]:
    def function(_: object) -> NoReturn:
        raise error

    return function


HOSTILE: dict[str, tuple[Callable[[object], object], str]] = {
    "circular": (circular, "ValueError: Circular reference"),
    "deep": (deep, "RecursionError: "),
    "a set": (lambda _: {1}, "TypeError: "),
    "no mapping": (lambda _: Unreadable(a=1), "KeyboardInterrupt: "),
    "unprintable": (raising(UnprintableError()), "UnprintableError, whose text raises SystemExit"),
    "exit": (raising(SystemExit(0)), "SystemExit: 0"),
    "cancelled": (raising(asyncio.CancelledError()), "CancelledError: "),
    "generator": (raising(GeneratorExit()), "GeneratorExit: "),
    "a returned exit": (lambda _: SystemExit(7), "SystemExit: 7"),
}
each = pytest.mark.parametrize(("function", "error"), HOSTILE.values(), ids=HOSTILE)


def poisoned(function: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: function(value) if value == "bad" else value


@each
def test_a_hostile_function_fails_its_request_only(function: Callable[[object], object], error: str) -> None:
    consumer = FakeConsumer(*map(request, ("bad", "good")), request("dead", "bad", has_reply_to=False))
    worker = consumer.run(poisoned(function))
    assert consumer.replies["bad"].error.startswith(error)
    assert consumer.replies["good"].value == "good"
    assert not consumer.requeued
    if consumer.dead_letters:
        assert consumer.dead_letters["dead"].startswith(error)
    else:  # nobody gets this result, so it need not be sent
        assert consumer.replies["dead"].value is None
    assert worker.completed_count == 3


@each
def test_a_hostile_function_fails_its_request_of_a_batch_only(
    function: Callable[[object], object], error: str
) -> None:
    def batch(values: list[object]) -> list[object]:
        return [poisoned(function)(value) for value in values]

    consumer = FakeConsumer(*map(request, ("good", "bad", "fine")))
    consumer.run(batch, Batch(3, 1.0))
    assert consumer.replies["bad"].error.startswith(error)
    assert [consumer.replies[name].value for name in ("good", "fine")] == ["good", "fine"]


@each
def test_a_hostile_overflow_function_fails_its_request_only(
    function: Callable[[object], object], error: str
) -> None:
    consumer = FakeConsumer(*(request(name, age=60) for name in ("bad", "good")))
    consumer.run(lambda _: "batch", overflow=Overflow(poisoned(function), after_seconds=30.0))
    assert consumer.replies["bad"].error.startswith(error)
    assert consumer.replies["good"].value == "good"


@pytest.mark.parametrize(
    ("returned", "actual"),
    [(Endless(), "OSError: a closed file"), (range(2), "range for 2"), (["A"], "1 results for 2")],
)
def test_what_is_no_list_of_results_is_an_error_that_names_it(returned: object, actual: str) -> None:
    consumer = FakeConsumer(*map(request, "ab"))
    consumer.run(lambda _: returned, Batch(2, 1.0))
    assert [actual in reply.error for reply in consumer.replies.values()] == [True, True]


@pytest.mark.parametrize("results_left_out", [0, 1])
def test_a_function_may_take_the_values_out_of_its_list(results_left_out: int) -> None:
    consumer = FakeConsumer(request("a"), request("b"))

    def pop_all(values: list[str]) -> list[str]:
        return [values.pop(0) for _ in range(len(values))][results_left_out:]

    consumer.run(pop_all, Batch(2))
    assert ("1 results for 2 requests" in consumer.replies["b"].error) is bool(results_left_out)
    assert [consumer.replies[name].value for name in "ab"] == ([None] * 2 if results_left_out else ["a", "b"])


def test_a_batch_of_which_the_second_try_returns_no_list_fails() -> None:
    def alone(values: list[object]) -> object:
        return values[0] if len(values) == 1 else 1 / 0

    consumer = FakeConsumer(*map(request, "ab"))
    consumer.run(alone, Batch(2, 1.0))
    assert ["str for 1 requests" in reply.error for reply in consumer.replies.values()] == [True, True]


def test_ctrl_c_without_a_handler_ends_the_worker_after_its_reply() -> None:
    consumer = FakeConsumer(*map(request, "ab"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        consumer.run(raising(KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(consumer.replies) == ["a"]


def test_an_error_of_the_library_in_an_overflow_thread_ends_the_worker() -> None:
    class Broken(FakeConsumer):
        def ack(self, acks: object) -> NoReturn:
            tried.set()
            raise RuntimeError("a mistake of the consumer")

        def receive(self, timeout: float) -> Any:
            if not self.waiting:
                tried.wait(10)
            return super().receive(timeout)

    tried = threading.Event()
    consumer = Broken(request("a", age=60))
    with pytest.raises(RuntimeError, match="a mistake"):
        consumer.run(str, overflow=Overflow(str.upper, after_seconds=30.0))


def test_drain_holds_no_lock_that_a_second_signal_would_wait_for() -> None:
    worker = Worker(FakeConsumer(), lambda _: Requeue())  # type: ignore[arg-type]
    assert not [value for value in vars(worker).values() if isinstance(value, threading.Event)]
    worker.drain()
    worker.run()


def test_a_ready_file_that_cannot_be_made_is_tried_again(tmp_path: Any) -> None:
    ready = tmp_path / "gone" / "ready"

    def function(value: str) -> str:
        if value == "b":
            ready.parent.mkdir()
        return value

    consumer = FakeConsumer(*map(request, "abc"))
    consumer.run(function, agent=Agent(ready_file=ready))
    assert ready.exists()
    assert len(consumer.replies) == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_a_function_forks_can_be_terminated(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    drained: list[int] = []
    try:
        _handle(number, lambda got, _: drained.append(got))
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        os.kill(child.pid or 0, number)
        child.join(10)
        assert child.exitcode == -number
        signal.raise_signal(number)
        assert drained == [number]
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("ending", "code"), [(None, 0), (SystemExit(3), 3), (SystemExit("no"), 1), (OSError(), 1)]
)
def test_a_process_that_a_function_forks_is_no_second_worker(ending: BaseException | None, code: int) -> None:
    consumer = FakeConsumer(request("a"), request("b"))

    def fork(_: object) -> int:
        if child := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ending is not None:
            raise ending
        return 7

    consumer.run(fork)
    assert [consumer.replies[name].value for name in "ab"] == [code, code]
