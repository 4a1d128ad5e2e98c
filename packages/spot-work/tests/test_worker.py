from __future__ import annotations

import json
import multiprocessing
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from spot_work import Batch, Overflow, Request, Requeue, Worker, serve
from spot_work.agent import Agent
from spot_work.batching import BatchTable
from spot_work.queue.consumer import Delivery
from spot_work.request.message import Message
from support.consumers import FakeConsumer, reply_values, request


def test_each_request_gets_its_own_reply() -> None:
    consumer = FakeConsumer(request("a"), request("b"))
    assert consumer.run(str.upper).completed_count == 2
    assert reply_values(consumer) == {"a": "A", "b": "B"}
    assert consumer.calls == ["stop", "close"]


class PausingConsumer(FakeConsumer):
    """Delivers nothing at its first poll."""

    polls = 0

    def receive(self, timeout: float) -> Delivery | None:
        self.polls += 1
        return None if self.polls == 1 else super().receive(timeout)


def test_it_says_when_it_has_requests_and_when_not() -> None:
    said: list[Any] = []
    PausingConsumer(request("a")).run(said.append, on_working=said.append)
    assert said == [False, True, "a"]


def test_a_batch_is_one_call() -> None:
    consumer, calls = FakeConsumer(*map(request, "abcde")), []
    consumer.run(lambda values: calls.append(values) or [value.upper() for value in values], Batch(3, 1.0))
    assert calls == [["a", "b", "c"], ["d", "e"]]
    assert reply_values(consumer) == {name: name.upper() for name in "abcde"}


def test_a_failing_request_does_not_fail_its_batch() -> None:
    def read(values: list[str]) -> list[str]:
        if "b" in values:
            raise ValueError("no image")
        return [value.upper() for value in values]

    consumer = FakeConsumer(*map(request, "abc"))
    consumer.run(read, Batch(3, 1.0))
    assert reply_values(consumer) == {"a": "A", "b": None, "c": "C"}
    assert consumer.replies["b"].error == "ValueError: no image"


def test_an_exception_in_the_results_is_that_requests_reply() -> None:
    consumer = FakeConsumer(*map(request, "ab"))
    consumer.run(lambda _: [KeyError("a"), "B"], Batch(2, 1.0))
    assert consumer.replies["a"].error == "KeyError: 'a'"
    assert consumer.replies["b"].value == "B"


@pytest.mark.parametrize("results", [["A"], "AB", None, 7])
def test_a_wrong_number_of_results_fails_the_batch(results: Any) -> None:
    consumer = FakeConsumer(*map(request, "abc"))
    consumer.run(lambda _: results, Batch(3, 1.0))
    assert all(
        "for 3 requests; return one result per request" in reply.error for reply in consumer.replies.values()
    )
    assert len(consumer.replies) == 3


def test_a_failed_request_without_reply_to_is_dead_lettered() -> None:
    consumer = FakeConsumer(request("a", has_reply_to=False), request("b"))
    consumer.run(lambda _: 1 / 0)
    assert consumer.dead_letters == {"a": "ZeroDivisionError: division by zero"}
    assert consumer.replies["b"].error.startswith("ZeroDivisionError")


def test_a_function_can_requeue_its_requests() -> None:
    consumer = FakeConsumer(*map(request, "ab"))

    def refuse(_: object) -> object:
        raise Requeue

    consumer.run(refuse, Batch(2, 1.0))
    assert consumer.requeued == ["a", "b"]
    assert not consumer.replies


def test_a_request_that_is_requeued_again_and_again_is_requeued_later_and_later() -> None:
    consumer = FakeConsumer(*(Request("a", 1, delivery_count=count) for count in (1, 2, 3, 4, 7, 19)))
    consumer.run(lambda _: Requeue())
    assert consumer.requeue_delays == [0.0, 0.5, 1.0, 2.0, 15.0, 15.0, 0.0][: len(consumer.requeue_delays)]
    assert len(consumer.requeued) == 6


def test_the_second_run_of_a_failed_batch_is_marked() -> None:
    runs: list[tuple[str, bool]] = []

    def read(requests: list[Request]) -> list[str]:
        runs.extend((request.id, request.is_repeat) for request in requests)
        if len(requests) > 1:
            raise ValueError("one of these")
        return [request.id for request in requests]

    consumer = FakeConsumer(*map(request, "ab"))
    consumer.run(read, Batch(2, 1.0), requests=True)
    assert runs == [("a", False), ("b", False), ("a", True), ("b", True)]
    assert all(reply.is_repeat for reply in consumer.replies.values())


def test_the_second_run_of_a_failed_batch_has_the_values_as_they_came() -> None:
    def take(values: list[dict[str, int]]) -> list[int]:
        taken = [value.pop("x") for value in values]
        if len(taken) > 1:
            raise RuntimeError("out of memory")
        return taken

    consumer = FakeConsumer(request("a", {"x": 1}), request("b", {"x": 2}))
    bodies = [
        Message("", json.dumps(delivery.request.value).encode(), is_json=True)
        for delivery in consumer.waiting
    ]
    pairs = zip(consumer.waiting, bodies, strict=True)
    consumer.waiting = [replace(delivery, received=body) for delivery, body in pairs]
    consumer.run(take, Batch(2))
    assert reply_values(consumer) == {"a": 1, "b": 2}


def test_a_worker_that_cannot_reply_says_so_to_the_node_agent(tmp_path: Path) -> None:
    report_file = tmp_path / "tell.json"
    consumer = FakeConsumer(request("a"))
    consumer.held_replies, consumer.stopped_reason = 7, "low on memory"
    agent = Agent(report_file=report_file)
    consumer.run(str.upper, agent=agent)
    report = json.loads(report_file.read_text())
    assert (report["held"], report["stopped"]) == (7, "low on memory")


def test_a_result_that_cannot_be_serialized_is_an_error() -> None:
    consumer = FakeConsumer(request("a"))
    consumer.run(lambda _: {1})
    assert "TypeError" in consumer.replies["a"].error


def test_requests_that_waited_too_long_run_in_the_overflow_pool() -> None:
    consumer, main_thread = (
        FakeConsumer(request("old", age=31), request("new", age=29)),
        threading.current_thread(),
    )
    threads: dict[str, threading.Thread] = {}

    def overflow(value: str) -> str:
        threads[value] = threading.current_thread()
        return "overflow"

    consumer.run(lambda _: "batch", overflow=Overflow(overflow, after_seconds=30.0))
    assert reply_values(consumer) == {"old": "overflow", "new": "batch"}
    assert threads["old"] is not main_thread


def test_a_request_is_part_of_the_batch_while_no_overflow_thread_is_free() -> None:
    go, working = threading.Event(), list[bool]()
    consumer = PausingConsumer(request("b", age=60))
    overflow = Overflow(lambda _: go.wait(60) and "overflow", 30.0, threads=1)
    worker = Worker(consumer, lambda _: go.set() or "batch", overflow=overflow, on_working=working.append)  # type: ignore
    consumer.worker = worker
    assert worker._overflows(Delivery(request("a", age=60), 0))
    worker.run()
    assert reply_values(consumer) == {"a": "overflow", "b": "batch"}
    assert working == [True, True]  # also while only the overflow function runs


class NotRun:
    async def __call__(self, _: object) -> None: ...

    def __await__(self) -> Any: ...


@pytest.mark.parametrize("result", [NotRun(), (one for one in "a"), map(str, "a"), Future(), Requeue])
def test_a_result_that_has_not_run_fails_a_request_without_reply_to(result: Any) -> None:
    consumer = FakeConsumer(request("a", has_reply_to=False))
    consumer.run(lambda _: result)
    assert "which has not run" in consumer.dead_letters["a"]


@pytest.mark.parametrize("seconds", [20.0, float("inf")])
def test_a_drain_ends_the_wait_for_a_batch(seconds: float) -> None:
    consumer = FakeConsumer(request("a"), drains_within_a_batch=True)
    consumer.run(lambda _: "ran", Batch(8, seconds))
    assert consumer.requeued == ["a"]


def test_a_drain_while_a_batch_is_gathered_requeues_it() -> None:
    consumer = FakeConsumer(request("a"), drains_within_a_batch=True)
    consumer.worker = Worker(consumer, lambda _: "ran", Batch(2, 1.0))  # type: ignore[arg-type]
    consumer.worker.run()  # the second receive drains, after the first request was received
    assert consumer.requeued == ["a"]
    assert not consumer.replies


def test_the_reply_to_a_repeat_is_marked() -> None:
    consumer = FakeConsumer(Request("a", 1, is_repeat=True, reply_to="replies"))
    consumer.run(lambda request: request.is_repeat, requests=True)
    assert (consumer.replies["a"].value, consumer.replies["a"].is_repeat) == (True, True)


def test_a_request_has_the_age_at_which_it_begins() -> None:
    ages: list[float] = []
    consumer = FakeConsumer(request("a", age=40.0))
    consumer.run(lambda request: ages.append(request.age_seconds), requests=True)
    assert 40 <= ages[0] < 100


def test_the_worker_reports_to_the_node_agent(tmp_path: Path) -> None:
    ready_file, report_file = tmp_path / "ready", tmp_path / "tell.json"
    agent = Agent.from_environment({"GPU_SPOT_READY": str(ready_file), "GPU_SPOT_TELL": str(report_file)})
    was_ready: list[bool] = []
    FakeConsumer(request("a"), request("b")).run(lambda _: was_ready.append(ready_file.exists()), agent=agent)
    assert ready_file.exists()
    report = json.loads(report_file.read_text())
    assert (report["done"], report["failed"]) == (1, 0)
    [[*counts, seconds, waiting]] = report["batches"]
    assert (counts, waiting, report["batchSize"]) == ([1, 1, 1], 0, 1)
    assert 0 <= seconds < 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_completed_requests_are_counted_and_requeued_ones_are_not() -> None:
    def read(value: str) -> object:
        if value == "back":
            raise Requeue
        return {1} if value == "set" else 1 / 0 if value == "bad" else value

    names = ("fine", "back", "bad", "set")
    consumer = FakeConsumer(*map(request, names), request("bad too", "bad", has_reply_to=False))
    worker = consumer.run(read)
    assert (worker.completed_count, worker.failed_count) == (4, 3)


class SlowSum(int):
    """A counter with a slow addition: unsynchronized additions in two threads would lose a count."""

    def __add__(self, other: int) -> SlowSum:
        time.sleep(0.005)
        return SlowSum(int(self) + other)


def test_counting_in_overflow_threads_is_safe() -> None:
    consumer = FakeConsumer(*(request(f"{number}", age=60) for number in range(24)))
    worker = Worker(consumer, str.upper, overflow=Overflow(str.upper, after_seconds=30, threads=8))  # type: ignore[arg-type]
    consumer.worker, worker.done = worker, SlowSum()
    worker.run()
    assert worker.completed_count == 24


def test_a_coroutine_function_is_rejected() -> None:
    async def later(_: object) -> None: ...

    with pytest.raises(TypeError, match="later is a coroutine function"):
        serve(later, "ocr", "amqp://localhost")
    with pytest.raises(TypeError, match=r"NotRun object .* is a coroutine function"):
        serve(NotRun(), "ocr", "amqp://localhost")
    with pytest.raises(TypeError, match="is a coroutine function"):
        serve(str, "ocr", "amqp://localhost", overflow=Overflow(partial(later), 30.0))


def test_it_is_refused_where_it_cannot_handle_signals_or_would_run_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="main thread"):
        pool.submit(serve, str, "ocr", "amqp://localhost").result()
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match="__main__"):
        serve(str, "ocr", "amqp://localhost")


def test_a_consumer_of_a_worker_that_cannot_start_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, handle = FakeConsumer(), Mock(side_effect=ValueError("no signals here"))
    monkeypatch.setattr("spot_work.transports.consumer", lambda *_, **__: consumer)
    monkeypatch.setattr("spot_work.worker._handle", handle)
    with pytest.raises(ValueError, match="no signals"):
        serve(str, "ocr", "amqp://localhost")
    assert consumer.calls == ["stop", "close"]


def test_busy_seconds_count_only_running_batches() -> None:
    worked = FakeConsumer(request("a"), request("b"), request("c")).run(lambda _: time.sleep(0.05))
    assert worked.busy_seconds >= 0.15
    assert FakeConsumer().run(lambda _: None).busy_seconds == 0.0


def test_batches_are_counted_by_size() -> None:
    consumer = FakeConsumer(*map(request, "abcdefgh"))
    consumer.waiting_count = 2
    worker = consumer.run(lambda values: time.sleep(0.01 * len(values)) or list(values), Batch(5, 1.0))
    five, three = reversed(worker.batches.rows())
    assert (five[:3], five[4]) == ([8, 1, 5], 2)
    assert (three[:3], three[4]) == ([4, 1, 3], 2)
    assert five[3] >= 0.05
    assert three[3] >= 0.03


def test_a_table_of_batches_is_small() -> None:
    table = BatchTable()
    for size in range(1, 9000):
        table.record(size, 1.0, 1)
    rows = table.rows()
    assert [row[0] for row in rows] == [2**power for power in range(13)]
    assert sum(row[1] for row in rows) == 8999
    assert len(json.dumps(rows)) < 500


def test_while_a_long_batch_runs_nothing_is_delivered() -> None:
    consumer = FakeConsumer(*map(request, "abc"))
    consumer.run(list, Batch(2))
    assert consumer.prefetches == [1, 2, 2, 0, 2]  # at first one, a full batch, one that is not, the drain


def test_one_request_at_a_time_until_one_is_new() -> None:
    consumer = FakeConsumer(
        *(replace(request(name), delivery_count=n) for name, n in zip("abc", (3, 2, 1), strict=True))
    )
    batches: list[list[str]] = []
    consumer.run(lambda values: batches.append(values) or values, Batch(3))  # type: ignore[func-returns-value]
    assert batches[0] == ["c"]
    assert sorted(batches[1:]) == [["a"], ["b"]]
    consumer = FakeConsumer(*(replace(request(f"{n}"), delivery_count=2 - n // 3) for n in range(6)))
    consumer.run(list, Batch(3))
    assert consumer.prefetches[:4] == [1, 1, 3, 3]
