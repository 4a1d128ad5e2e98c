from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spot_work import Batch, HandBack, Overflow, Request, Worker, message, serve
from spot_work.agent import Agent
from spot_work.queue_reader import Said, Taken
from spot_work.worker import _PATIENCE


class Bench:
    """A source with requests in it, which tells the worker to drain when it has run dry."""

    def __init__(self, *requests: Request, drains_within_a_batch: bool = False) -> None:
        self._drains = drains_within_a_batch
        self.waiting = [Taken(request, number) for number, request in enumerate(requests)]
        self.answers: dict[str, message.Reply] = {}
        self.returned: list[str] = []
        self.dead: list[str] = []
        self.happened: list[str] = []
        self.is_connected = threading.Event()
        self.is_connected.set()
        self.worker: Worker | None = None

    def take(self, seconds: float) -> Taken | None:
        if self.waiting:
            return self.waiting.pop(0)
        assert self.worker is not None
        if seconds == _PATIENCE or self._drains:
            self.worker.drain()
        return None

    def say(self, answers: Sequence[Said]) -> None:
        for said in answers:
            assert said.answer is not None
            self.answers[said.taken.request.id] = message.read_reply(said.answer)

    def hand_back(self, taken: Sequence[Taken]) -> None:
        self.returned += [one.request.id for one in taken]

    def bury(self, taken: Taken) -> None:
        self.dead.append(taken.request.id)

    def stop(self) -> None:
        self.happened.append("stop")

    def close(self, seconds: float) -> None:
        self.happened.append("close")

    def run(self, function: Callable[[Any], Any], *arguments: Any, **more: Any) -> Worker:
        self.worker = Worker(self, function, *arguments, **more)  # type: ignore[arg-type]
        self.worker.run()
        return self.worker


def request(name: str, value: Any = None, *, age: float = 0.0, asks: bool = True) -> Request:
    return Request(name, name if value is None else value, age=age, reply_to="answers" if asks else "")


def values(bench: Bench) -> dict[str, Any]:
    return {name: one.value for name, one in bench.answers.items()}


def test_each_gets_its_own_answer() -> None:
    bench = Bench(request("a"), request("b"))
    assert bench.run(str.upper).done == 2
    assert values(bench) == {"a": "A", "b": "B"}
    assert bench.happened == ["stop", "close"]


def test_a_batch_is_one_call() -> None:
    bench, calls = Bench(*map(request, "abcde")), []
    bench.run(lambda given: calls.append(given) or [one.upper() for one in given], Batch(3, 1.0))
    assert calls == [["a", "b", "c"], ["d", "e"]]
    assert values(bench) == {one: one.upper() for one in "abcde"}


def test_one_bad_task_fails_alone() -> None:
    def read(given: list[str]) -> list[str]:
        if "b" in given:
            raise ValueError("no image")
        return [one.upper() for one in given]

    bench = Bench(*map(request, "abc"))
    bench.run(read, Batch(3, 1.0))
    assert values(bench) == {"a": "A", "b": None, "c": "C"}
    assert bench.answers["b"].failed == "ValueError: no image"


def test_an_exception_in_the_lists_place_is_that_tasks_answer() -> None:
    bench = Bench(*map(request, "ab"))
    bench.run(lambda given: [KeyError("a"), "B"], Batch(2, 1.0))
    assert bench.answers["a"].failed == "KeyError: 'a'"
    assert bench.answers["b"].value == "B"


@pytest.mark.parametrize("results", [["A"], "AB", None, 7])
def test_results_that_are_not_one_each_fail_all(results: Any) -> None:
    bench = Bench(*map(request, "abc"))
    bench.run(lambda given: results, Batch(3, 1.0))
    assert all("for 3 requests, allowed: one each" in one.failed for one in bench.answers.values())
    assert len(bench.answers) == 3


def test_what_nobody_waits_for_and_fails_is_buried_not_lost() -> None:
    bench = Bench(request("a", asks=False), request("b"))
    bench.run(lambda _: 1 / 0)
    assert bench.dead == ["a"]
    assert bench.answers["b"].failed.startswith("ZeroDivisionError")


def test_a_function_hands_back_what_another_shall_try() -> None:
    bench = Bench(*map(request, "ab"))

    def refuse(_: object) -> object:
        raise HandBack

    bench.run(refuse, Batch(2, 1.0))
    assert bench.returned == ["a", "b"]
    assert not bench.answers


def test_a_result_that_cannot_be_sent_is_said_so() -> None:
    bench = Bench(request("a"))
    bench.run(lambda _: {1})
    assert "TypeError" in bench.answers["a"].failed


def test_what_has_waited_too_long_goes_beside() -> None:
    bench, here = Bench(request("old", age=31), request("new", age=29)), threading.current_thread()
    ran_in: dict[str, threading.Thread] = {}

    def elsewhere(given: str) -> str:
        ran_in[given] = threading.current_thread()
        return "elsewhere"

    bench.run(lambda given: "here", overflow=Overflow(elsewhere, after=30.0))
    assert values(bench) == {"old": "elsewhere", "new": "here"}
    assert ran_in["old"] is not here


def test_a_drain_while_a_batch_is_gathered_begins_nothing() -> None:
    bench = Bench(request("a"), drains_within_a_batch=True)
    bench.worker = Worker(bench, lambda _: "ran", Batch(2, 1.0))  # type: ignore[arg-type]
    bench.worker.run()  # the second take drains: the first request was taken already
    assert bench.returned == ["a"]
    assert not bench.answers


def test_a_repeat_says_so_in_its_answer() -> None:
    bench = Bench(Request("a", 1, is_repeat=True, reply_to="answers"))
    bench.run(lambda given: given.is_repeat, requests=True)
    assert (bench.answers["a"].value, bench.answers["a"].is_repeat) == (True, True)


def test_it_says_to_the_agent_that_it_is_ready_and_what_it_has_done(tmp_path: Path) -> None:
    ready, tell = tmp_path / "ready", tmp_path / "tell.json"
    agent = Agent.of_environment({"GPU_SPOT_READY": str(ready), "GPU_SPOT_TELL": str(tell)})
    seen: list[bool] = []
    Bench(request("a"), request("b")).run(lambda given: seen.append(ready.exists()), agent=agent)
    assert ready.exists()
    told = json.loads(tell.read_text())
    assert (told["done"], told["failed"]) == (1, 0)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_ended_is_counted_and_what_was_handed_back_is_not() -> None:
    def read(given: str) -> object:
        if given == "back":
            raise HandBack
        return {1} if given == "set" else 1 / 0 if given == "bad" else given

    names = ("fine", "back", "bad", "set")
    bench = Bench(*map(request, names), request("bad too", "bad", asks=False))
    worker = bench.run(read)
    assert (worker.done, worker.failed) == (4, 3)


class SlowSum(int):
    """A count that takes long to add to: whoever reads it meanwhile would lose an addition."""

    def __add__(self, other: int) -> SlowSum:
        time.sleep(0.005)
        return SlowSum(int(self) + other)


def test_threads_beside_the_batches_lose_no_count() -> None:
    bench = Bench(*(request(f"{number}", age=60) for number in range(24)))
    worker = Worker(bench, str.upper, overflow=Overflow(str.upper, after=30, threads=8))  # type: ignore[arg-type]
    bench.worker, worker.done = worker, SlowSum()
    worker.run()
    assert worker.done == 24


def test_a_coroutine_is_refused() -> None:
    async def later(_: object) -> None: ...

    with pytest.raises(TypeError, match="later is a coroutine"):
        serve(later, "ocr", "amqp://localhost")


def test_it_counts_the_seconds_in_which_it_had_work_and_no_others() -> None:
    worked = Bench(request("a"), request("b"), request("c")).run(lambda _: time.sleep(0.05))
    assert worked.busy >= 0.15
    assert Bench().run(lambda _: None).busy == 0.0
