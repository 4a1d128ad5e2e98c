"""Many real workers on a real broker, lost and drained at random, while clients ask: what became of it all.

The same code in `test_crowd.py` at a reduced count, and in
`make bench-service` and `make bench-service-sqs`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from packages import run_recorder
from packages.broker_plays.workers import NOTICE_SECONDS, Stable, Worker
from spot_work import Client, Queue, WorkError

QUEUE: Final = Queue("ocr", max_deliveries=200)
"""Workers are lost here a hundred times as often as on spot instances."""
WORKER: Final = (
    *("-m", "spot_work", "packages.run_recorder:run", "--requests"),
    *("--queue", QUEUE.name, "--batch", "8", "--max-deliveries", str(QUEUE.max_deliveries)),
)
"""The arguments of Python."""


LONGEST_WAIT_SECONDS: Final = 400.0
"""Below ``faulthandler_timeout`` (pyproject.toml), which ends a test without a word of the workers."""


@dataclass
class Outcome:
    """What became of all requests."""

    messages: int = 0
    lost: int = 0
    wrong: int = 0
    unmarked_duplicates: int = 0
    """Requests of which more than one run did not know that it might not be the first."""
    runs_repeated: int = 0
    killed: int = 0
    drained: int = 0
    drains_failed: int = 0
    """Drained workers that did not end well, or not within a notice."""
    longest_drain: float = 0.0
    broker_restarts: int = 0
    errors: list[str] = field(default_factory=list)


class Broker(Protocol):
    """What the crowd plays on: a server of RabbitMQ, or a double of SQS."""

    @property
    def url(self) -> str: ...

    def has_queue(self, queue: str) -> bool: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Crowd:
    """Workers of a ``stable`` on a queue."""

    def __init__(self, broker: Broker, stable: Stable, size: int) -> None:
        self._broker = broker
        self._stable = stable
        self._started = 0
        self.records: set[Path] = set()
        self._workers = [self._start() for _ in range(size)]

    def lose(self, dice: random.Random) -> None:
        """Kill one without a notice, and start another."""
        worker = self._pick(dice)
        worker.kill()
        self._workers.append(self._start())

    def drain(self, dice: random.Random) -> float:
        """Tell one to drain, and start another; return the seconds that it took, infinite if it failed."""
        worker = self._pick(dice)
        started_at = time.monotonic()
        worker.drain()
        self._workers.append(self._start())
        return time.monotonic() - started_at if worker.wait() else float("inf")

    def end(self) -> None:
        """Drain all that are left."""
        for worker in self._workers:
            wait_for(worker.ready.exists, self.output)
            worker.drain()
        for worker in self._workers:
            worker.wait()

    def output(self) -> str:
        """Return the end of what the workers said."""
        return self._stable.output()

    def _pick(self, dice: random.Random) -> Worker:
        worker = self._workers.pop(dice.randrange(len(self._workers)))
        wait_for(worker.ready.exists, self.output)  # one that has nothing yet just ends
        return worker

    def _start(self) -> Worker:
        self._started += 1
        worker = self._stable.start(self._started, list(WORKER), self._broker.url)
        self.records.add(worker.record)
        return worker


def play(broker: Broker, stable: Stable, messages: int, *, workers: int, losses: int, seed: int) -> Outcome:
    """Send ``messages`` while ``losses`` workers are killed or drained and the broker is killed once."""
    dice, outcome = random.Random(seed), Outcome(messages=messages)
    crowd = Crowd(broker, stable, workers)
    # Each happening comes when so many requests have been answered: spread over the whole of the run.
    happenings = sorted((dice.random() * 0.9, dice.choice(["kill", "drain"])) for _ in range(losses))
    happenings = sorted([*happenings, (0.5, "broker")])
    asked: list[Future[Any]] = []
    with Client(broker.url, QUEUE) as client:
        answered = Counter[str]()
        for number in range(messages):
            answer = client.submit(number, timeout=600.0)
            answer.add_done_callback(lambda _: answered.update(all=1))
            asked.append(answer)
        for share, what in happenings:
            wait_for(partial(lambda least: answered["all"] >= least, share * messages), crowd.output)
            if what == "broker":
                wait_for(lambda: broker.has_queue(QUEUE.name), crowd.output)
                broker.kill()
                broker.start()
                outcome.broker_restarts += 1
            elif what == "kill":
                crowd.lose(dice)
                outcome.killed += 1
            else:
                seconds = crowd.drain(dice)
                outcome.drained += 1
                outcome.drains_failed += seconds > NOTICE_SECONDS
                outcome.longest_drain = max(outcome.longest_drain, seconds)
        for number, answer in enumerate(asked):
            try:
                outcome.wrong += answer.result() != 2 * number
            except WorkError as error:
                outcome.lost += 1
                outcome.errors.append(repr(error))
    crowd.end()
    runs = run_recorder.read(*crowd.records)
    outcome.unmarked_duplicates, outcome.runs_repeated = runs.unmarked_duplicates, runs.repeated
    return outcome


def check(outcome: Outcome) -> None:
    """Hold a crowd on a RabbitMQ server to no loss, no wrong answer, and no repeat without its mark."""
    assert (outcome.lost, outcome.wrong, outcome.unmarked_duplicates) == (0, 0, 0), outcome
    assert outcome.drains_failed == 0, outcome
    assert outcome.killed > 0
    assert outcome.drained > 0
    assert outcome.broker_restarts == 1


def wait_for(condition: Callable[[], object], said: Callable[[], str]) -> None:
    """Raise `TimeoutError` with what the workers said after ``LONGEST_WAIT_SECONDS``."""
    end = time.monotonic() + LONGEST_WAIT_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing went on for {LONGEST_WAIT_SECONDS} s; the workers said: {said()}")
        time.sleep(0.02)
