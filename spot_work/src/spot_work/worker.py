"""Run a function on what a queue brings, in batches, until the instance is taken."""

from __future__ import annotations

import inspect
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from spot_work import message, transports
from spot_work.agent import Agent
from spot_work.batching import Batch, gather
from spot_work.errors import HandBack
from spot_work.queue_reader import Said, Source, Taken
from spot_work.queues import Queue

log: Final = logging.getLogger("spot_work")

_PATIENCE: Final = 0.5
"""Seconds after which a worker without requests looks whether it is to stop."""
_LAST_SECONDS: Final = 20.0
"""For answers that are on their way when the worker has finished."""


@dataclass(frozen=True)
class Overflow:
    """Where requests go that have waited longer than ``after`` seconds: another provider, a CPU path.

    ``run`` gets one value at a time, in one of ``threads`` threads, beside the batches.
    """

    run: Callable[[Any], Any]
    after: float
    threads: int = 4


class Worker:
    """Takes requests, runs a function on them, answers.

    Args:
        source: of the requests.
        function: gets one value and returns one; with a batch of more than one, a list of values, and returns
            a list as long. An exception, raised or in the list's place, is the answer of that request; where
            nobody waits for it the request goes to the queue of the dead. `HandBack`: to another worker.
        requests: the function gets `Request` objects in place of values.
        agent: the node agent, where there is one.
    """

    def __init__(
        self,
        source: Source,
        function: Callable[[Any], Any],
        batch: Batch = Batch(),  # noqa: B008 - frozen
        overflow: Overflow | None = None,
        *,
        requests: bool = False,
        agent: Agent | None = None,
    ) -> None:
        self._source = source
        self._function = function
        self._batch = batch
        self._overflow = overflow
        self._wants_requests = requests
        self._agent = agent or Agent()
        self._beside = ThreadPoolExecutor(overflow.threads, "spot-work-overflow") if overflow else None
        self._is_draining = threading.Event()
        # The overflow's threads count beside the batches.
        self._counting = threading.Lock()
        self.done = 0
        """Requests that have ended here, well or not; what was handed back has not."""
        self.failed = 0
        """How many of them with an error."""
        self.busy = 0.0
        """Seconds in which batches ran."""

    def drain(self) -> None:
        """Take nothing more; `run` returns when what has begun is finished. Safe in a signal handler."""
        self._is_draining.set()

    def run(self) -> None:
        """Work until told to drain.

        Raises:
            BrokerRefusedError: the broker refuses us.
            ConnectionError: it could not be reached for too long.
        """
        is_said = False
        while not self._is_draining.is_set():
            found = gather(self._batch, self._source.take, time.monotonic, _PATIENCE)
            if not is_said and self._source.is_connected.is_set():
                is_said = True
                self._agent.say_ready()
            if self._is_draining.is_set():
                self._source.hand_back(found)
                break
            if found:
                begun = time.monotonic()
                self._work(found)
                self.busy += time.monotonic() - begun
            self._agent.tell(self.done, self.failed, self.busy)
        self._source.stop()
        if self._beside is not None:
            self._beside.shutdown()
        self._source.close(_LAST_SECONDS)
        log.info("drained after %d requests", self.done)

    def _work(self, found: list[Taken]) -> None:
        batch = []
        for taken in found:
            if self._overflow and self._beside and taken.request.age > self._overflow.after:
                self._beside.submit(self._run_beside, self._overflow, taken)
            else:
                batch.append(taken)
        if batch:
            self._answer(batch, self._results(batch))

    def _results(self, batch: Sequence[Taken]) -> Sequence[Any]:
        given = [one.request if self._wants_requests else one.request.value for one in batch]
        if self._batch.size == 1:
            return [_attempt(self._function, given[0])]
        results = _attempt(self._function, given)
        if isinstance(results, list | tuple) and len(results) == len(given):
            return results
        if not isinstance(results, Exception):
            wrong = f"{len(results)} results" if hasattr(results, "__len__") else type(results).__name__
            return [TypeError(f"{wrong} for {len(given)} requests, allowed: one each")] * len(given)
        if len(given) == 1 or isinstance(results, HandBack):
            return [results] * len(given)
        # One bad request must not fail the others: each gets its own try.
        log.warning("a batch of %d failed (%s): its requests are run one by one", len(given), results)
        singles = (_attempt(self._function, [value]) for value in given)
        return [one if isinstance(one, Exception) else one[0] for one in singles]

    def _run_beside(self, overflow: Overflow, taken: Taken) -> None:
        given = taken.request if self._wants_requests else taken.request.value
        self._answer([taken], [_attempt(overflow.run, given)])

    def _answer(self, batch: Sequence[Taken], results: Sequence[Any]) -> None:
        answers = []
        ended = errors = 0
        for taken, result in zip(batch, results, strict=True):
            if isinstance(result, HandBack):
                self._source.hand_back([taken])
                continue
            ended += 1
            failed = f"{type(result).__name__}: {result}" if isinstance(result, Exception) else ""
            if failed:
                errors += 1
                log.error("request %s failed: %s", taken.request.id, failed)
            if failed and not taken.request.reply_to:
                self._source.bury(taken)
                continue
            try:
                answers.append(Said(taken, message.reply(taken.request, result, failed)))
            except TypeError as error:
                errors += 1
                answers.append(Said(taken, message.reply(taken.request, None, f"TypeError: {error}")))
        with self._counting:
            self.done += ended
            self.failed += errors
        self._source.say(answers)


def _attempt(function: Callable[[Any], Any], given: Any) -> Any:
    try:
        return function(given)
    except Exception as error:  # whatever it is, it is the answer
        return error


def serve(
    function: Callable[[Any], Any],
    queue: Queue | str,
    url: str,
    batch: Batch = Batch(),  # noqa: B008 - frozen
    overflow: Overflow | None = None,
    *,
    requests: bool = False,
) -> None:
    """Make a function a worker, until SIGTERM or SIGINT: then it finishes what it has begun, and returns.

    To be called in the main thread, after the model is loaded. The arguments are those of `Worker`; as many
    requests as are in a batch wait here while the batch before runs.

    Raises:
        BrokerRefusedError: the broker refuses us.
        ConnectionError: it could not be reached for 15 minutes.
        TypeError: the function is a coroutine.
    """
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{function.__name__} is a coroutine, allowed: a plain function")
    queue = Queue(queue) if isinstance(queue, str) else queue
    source = transports.source(url, queue, 2 * batch.size)
    worker = Worker(source, function, batch, overflow, requests=requests, agent=Agent.of_environment())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.drain())
    worker.run()
