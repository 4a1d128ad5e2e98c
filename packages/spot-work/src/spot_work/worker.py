"""Workers: run a function on the requests of a queue, in batches, until the instance is interrupted."""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn

from spot_work import transports
from spot_work.agent import Agent
from spot_work.batching import Batch, BatchTable, HandBack, Prefetch, gather, size_within
from spot_work.errors import Requeue
from spot_work.pod import DeletionCost
from spot_work.queue.consumer import Ack, Delivery, RequestConsumer
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl
from spot_work.request import deadline, message, trace
from spot_work.request.deadline import QueueDelay, RunTimes
from spot_work.request.message import Message, Request
from spot_work.watchdog.supervisor import Watchdog

log: Final = logging.getLogger("spot_work")

_POLL_SECONDS: Final = 0.5
"""Maximum wait for a request before the worker checks whether it must drain."""
_IN_DELIVERY_SECONDS: Final = 0.01
"""Maximum wait for the next request of a batch that the broker delivers at once."""
_CLOSE_SECONDS: Final = 20.0
"""Maximum wait for the confirmation of the last replies."""
_MIN_REQUEUE_SECONDS: Final = 0.5
_MAX_REQUEUE_SECONDS: Final = 15.0
"""Delays before a request is requeued again: they double from the minimum to the maximum."""
_FLUSH_SECONDS: Final = 1.0
"""Maximum wait for the confirmation of replies before a request that may end the process."""
_MAX_REASON: Final = 200
"""Characters of a reason in the report; the node agent reads at most 4 KiB."""
_CTRL_C: Final = signal.default_int_handler
_NOT_RUN: Final = (Awaitable, AsyncGenerator, Generator, Future, map, filter, type)
"""Results whose work is still to be done, and classes: of an exception, such as ``Requeue``."""
_STOP_CHECK_SECONDS: Final = 1.0
"""Maximum wait for the next request of a batch before the worker checks whether it must drain."""


@dataclass(frozen=True)
class Overflow:
    """A second function for requests that have waited longer than ``after_seconds``.

    For example another provider, or a CPU implementation. ``run`` gets one value per call, in a pool of
    ``threads`` threads, in parallel with the batches; while none is free, the batches take what waits.
    """

    run: Callable[[Any], Any]
    after_seconds: float
    threads: int = 4


class Worker:
    """Receives requests, runs a function on them and sends the replies.

    Args:
        consumer: the source of the requests.
        function: gets a value and returns the result. With a batch size above 1 it gets a list of values and
            returns a list of as many results. An exception, raised or in the list of results, is the reply,
            also ``SystemExit``; so is that of a result that cannot be sent. A failed request without
            ``reply_to`` goes to the dead-letter queue. `Requeue` returns the request to the queue. While it
            runs, `trace_carriers` has the trace contexts of its values. From its second delivery on a request
            runs alone: it may have ended a worker.
        batch: size and maximum wait of a batch.
        overflow: runs requests that have waited too long.
        requests: pass `Request` objects to the functions instead of values.
        agent: the node agent to report to.
        on_working: called with whether the worker has requests, when that changes.
    """

    def __init__(
        self,
        consumer: RequestConsumer,
        function: Callable[[Any], Any],
        batch: Batch = Batch(),  # noqa: B008 - frozen
        overflow: Overflow | None = None,
        *,
        requests: bool = False,
        agent: Agent | None = None,
        on_working: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._consumer = consumer
        self._on_working = on_working
        self._function = function
        self._batch = batch
        self._overflow = overflow
        self._passes_requests = requests
        self._agent = agent or Agent()
        self._overflow_pool = ThreadPoolExecutor(overflow.threads, "spot-work-overflow") if overflow else None
        self._is_draining = False  # no Event: a second signal may interrupt its `set`, which holds a lock
        self._overflow_error: BaseException | None = None
        self._counts_lock = threading.Lock()  # overflow threads count, too
        self.completed_count = 0
        """Requests that have succeeded or failed here; requeued ones do not count."""
        self.failed_count = 0
        """Completed requests that failed."""
        self.refused_count = 0
        """Requests that were not run because they could not meet their deadline; not completed."""
        self._run_times = RunTimes()
        self.busy_seconds = 0.0
        """Seconds in which a batch was running."""
        self._size = batch.size
        self._prefetch = self._new_prefetch()
        self._is_careful = True
        """Have one request only, until the first that is new: others may have ended workers."""
        self._hand_back = HandBack(consumer)
        self._in_overflow = 0
        self.batches = BatchTable()
        """Batches by size."""

    def _new_prefetch(self) -> Prefetch:
        threads = self._overflow.threads if self._overflow else 0
        ahead = self._consumer.max_batches_ahead
        return Prefetch(self._size, overflow_threads=threads, max_batches_ahead=ahead)

    def drain(self) -> None:
        """Receive nothing more; `run` returns after the current batch. Safe in a signal handler."""
        self._is_draining = True

    def run(self) -> None:
        """Work until `drain` is called.

        Raises:
            BrokerRefusedError: the broker refuses the connection.
            ConnectionError: the broker was unreachable for too long.
        """
        self._hand_back.start()
        while not self._is_draining:
            deliveries = self._gather()
            if self._consumer.is_connected.is_set():
                self._agent.report_ready()
            self._raise_overflow_error()
            if self._is_draining:
                self._consumer.requeue(deliveries)
                break
            if deliveries:
                started_at = time.monotonic()
                if not self._is_careful:
                    self._consumer.set_prefetch(self._prefetch.running(len(deliveries)))
                self._on_working(True)
                with self._hand_back:
                    self._process(deliveries)
                seconds = time.monotonic() - started_at
                self._prefetch.record(seconds)
                self.busy_seconds += seconds
            else:
                self._on_working(self._in_overflow > 0)
            self._agent.report(self._counts)
        self._hand_back.stop()
        self._consumer.stop()
        if self._overflow_pool is not None:
            self._overflow_pool.shutdown()
        self._consumer.close(_CLOSE_SECONDS)
        self._raise_overflow_error()
        log.info("drained after %d requests", self.completed_count)

    def _counts(self) -> dict[str, Any]:
        """Return the report to the node agent: ``done`` includes ``failed`` and not ``refused``."""
        counts: dict[str, Any] = {"done": self.completed_count, "failed": self.failed_count}
        counts |= {"refused": self.refused_count, "busy": round(self.busy_seconds, 3)}
        counts |= {"batches": self.batches.rows(), "batchSize": self._batch.size}
        if replies := self._consumer.held_replies:
            counts["held"] = replies
        if reason := self._consumer.stopped_reason:
            counts["stopped"] = reason[:_MAX_REASON]
        return counts

    def _raise_overflow_error(self) -> None:
        if self._overflow_error is not None:
            raise self._overflow_error

    def _gather(self) -> list[Delivery]:
        """Return the next batch, once requests are delivered again."""
        self._consumer.set_prefetch(1 if self._is_careful else self._prefetch.idle)
        in_delivery = 0.0 if self._prefetch.is_ahead else _IN_DELIVERY_SECONDS
        limited = self._batch if self._size == self._batch.size else replace(self._batch, size=self._size)
        batch = gather(limited, self._receive, time.monotonic, _POLL_SECONDS, in_delivery)
        if self._is_careful and batch:
            self._is_careful = any(delivery.request.delivery_count > 1 for delivery in batch)
        return batch

    def _receive(self, timeout: float) -> Delivery | None:
        """Return the next request that can meet its deadline; refuse the others. A drain ends the wait."""
        while not self._is_draining:
            started_at, seconds = time.monotonic(), min(max(timeout, 0.0), _STOP_CHECK_SECONDS)
            delivery = self._consumer.receive(seconds)
            if delivery is not None and not self._refuse_late(delivery, self._run_times.shortest):
                return delivery
            timeout -= seconds if delivery is None else time.monotonic() - started_at
            if delivery is None and timeout <= 0:
                break
        return None

    def _refuse_late(self, delivery: Delivery, run_seconds: float = 0.0) -> bool:
        """Refuse a request that cannot meet its deadline if it is run now; return whether it was refused."""
        request, now = delivery.request, time.time()
        late = deadline.lateness(request.sent_at, request.deadline, now, run_seconds)
        if late is None:
            return False
        log.debug("request %s: refused, %.1f s late", request.id, late)
        reply = message.refusal(request, deadline.retry_after(late), self._delay(request, now))
        with self._counts_lock:
            self.refused_count += 1
        self._consumer.ack([Ack(delivery, reply)])
        return True

    def _delay(self, request: Request, now: float) -> QueueDelay | None:
        """Return the queue's delay by a request that is run or refused now; a repeat has waited elsewhere."""
        if request.sent_at is None or request.is_repeat:
            return None
        return QueueDelay(max(now - request.sent_at, 0.0), self._run_times.shortest)

    def _process(self, deliveries: Sequence[Delivery]) -> None:
        batch: list[Delivery] = []
        suspects: list[Delivery] = []
        for delivery in deliveries:
            if not (self._overflows(delivery) or self._refuse_late(delivery)):
                (batch if delivery.request.delivery_count <= 1 else suspects).append(delivery)
        self._run_timed(batch)
        # One may have ended its worker. Of those that it takes with it, half come before it the next time.
        if suspects:  # to make a generator takes longer than a short batch
            random.Random().shuffle(suspects)
        for delivery in suspects:
            if self._is_draining:
                self._consumer.requeue([delivery])
            elif not self._refuse_late(delivery):
                request = delivery.request
                log.warning("request %s: delivery %d, run alone", request.id, request.delivery_count)
                self._flush()
                self._run_timed([delivery])

    def _flush(self) -> None:
        """Wait until the replies of the requests before are confirmed, for a second at most."""
        end = time.monotonic() + _FLUSH_SECONDS
        while self._consumer.held_replies and time.monotonic() < end:
            time.sleep(_IN_DELIVERY_SECONDS)

    def _run_timed(self, batch: Sequence[Delivery]) -> None:
        if batch:
            waiting, started_at = self._consumer.waiting_count, time.monotonic()
            self._run_batch(batch)
            seconds = time.monotonic() - started_at
            self.batches.record(len(batch), seconds, waiting)
            self._run_times.record(seconds)
            self._limit_batches(len(batch), seconds)

    def _limit_batches(self, count: int, seconds: float) -> None:
        """Make the next batches end before the queue delivers their requests again."""
        timeout = getattr(self._consumer, "ack_timeout_seconds", None)
        size = size_within(timeout, self._batch, self._size, count, seconds)
        if size != self._size:
            log.warning("batches of at most %d: %d requests took %.1f s", size, count, seconds)
            self._size = size
            self._prefetch = self._new_prefetch()
        if timeout is not None and seconds > timeout:
            text = "%d requests took %.1f s; what is not settled within %.1f s is delivered again"
            text += " (RabbitMQ: set consumer_timeout above it)"
            log.error(text, count, seconds, timeout)

    def _argument(self, delivery: Delivery) -> Any:
        return delivery.request.at(time.time()) if self._passes_requests else delivery.request.value

    def _run_batch(self, batch: Sequence[Delivery]) -> None:
        arguments = [self._argument(delivery) for delivery in batch]
        delays = [self._delay(delivery.request, time.time()) for delivery in batch]
        if self._batch.size == 1:
            self._settle(batch, [self._call(self._function, arguments[0], batch)], delays)
            return
        results = self._call(partial(_call_batch, self._function), arguments, batch)
        if not isinstance(results, BaseException):
            self._settle(batch, results, delays)
        elif len(batch) == 1 or isinstance(results, Requeue):
            self._settle(batch, [results] * len(batch), delays)
        else:
            text = _describe(results)
            log.warning("batch of %d failed (%s), running its requests one by one", len(batch), text)
            for delivery in batch:
                if not self._refuse_late(delivery):
                    self._run_batch([delivery.as_repeat()])

    def _overflows(self, delivery: Delivery) -> bool:
        """Give a request that has waited too long to the overflow function, if a thread is free."""
        overflow, pool = self._overflow, self._overflow_pool
        if not (overflow and pool) or delivery.request.at(time.time()).age_seconds <= overflow.after_seconds:
            return False
        with self._counts_lock:
            if self._in_overflow >= overflow.threads:
                return False
            self._in_overflow += 1
        pool.submit(self._run_in_overflow_pool, overflow, delivery)
        return True

    def _run_in_overflow_pool(self, overflow: Overflow, delivery: Delivery) -> None:
        try:
            if not self._refuse_late(delivery):
                result = self._call(overflow.run, self._argument(delivery), [delivery])
                self._settle([delivery], [result], [None])
        except BaseException as error:  # not of the function; `run` raises it
            self._overflow_error = error
        finally:
            with self._counts_lock:
                self._in_overflow -= 1

    def _call(self, function: Callable[[Any], Any], argument: Any, batch: Sequence[Delivery]) -> Any:
        """Return what the function returns, or the exception that it raises."""
        token = trace.trace_carriers.set(tuple([delivery.request.trace for delivery in batch]))
        process, ended = os.getpid(), None
        try:
            return function(argument)
        except BaseException as error:  # any failure is the request's reply, also an exit
            ended = error
            if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is _CTRL_C:
                self.drain()  # the user's, not the function's
            return error
        finally:
            if os.getpid() != process:
                _end_child(ended)
            trace.trace_carriers.reset(token)

    def _settle(
        self, batch: Sequence[Delivery], results: Sequence[Any], delays: Sequence[QueueDelay | None]
    ) -> None:
        """Requeue, dead-letter or reply to each request, and count it; ``delays`` as replies report them."""
        acks = []
        completed = failed = 0
        for delivery, result, delay in zip(batch, results, delays, strict=True):
            request = delivery.request
            error, reply = _reply(request, result, delay)
            if isinstance(error, Requeue):
                self._requeue(delivery)
                continue
            completed += 1
            if error is not None:
                failed += 1
                text = _describe(error)
                log.error("request %s failed: %s", request.id, text)
                if not request.reply_to:
                    self._consumer.dead_letter(delivery, text)
                    continue
            acks.append(Ack(delivery, reply))
        with self._counts_lock:
            self.completed_count += completed
            self.failed_count += failed
        self._consumer.ack(acks)

    def _requeue(self, delivery: Delivery) -> None:
        """Requeue a request, later with each delivery: nothing may have changed since the last one."""
        count, seconds = delivery.request.delivery_count, 0.0
        if count > 1:
            seconds = min(_MIN_REQUEUE_SECONDS * 2.0 ** min(count - 2, 10), _MAX_REQUEUE_SECONDS)
        log.warning("request %s: requeued after delivery %d, in %.1f s", delivery.request.id, count, seconds)
        self._consumer.requeue([delivery], seconds)


def _end_child(ended: BaseException | None) -> NoReturn:
    """End a process that the function forked as it would end elsewhere: it is no second worker."""
    code = ended.code if isinstance(ended, SystemExit) else None if ended is None else 1
    if ended is not None and not isinstance(ended, SystemExit):
        traceback.print_exception(ended)
    elif not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _call_batch(function: Callable[[list[Any]], Any], arguments: list[Any]) -> list[Any]:
    """Return one result per argument: of another number of results an error for each."""
    count, returned = len(arguments), function(arguments)  # which may take values out of the list
    actual = type(returned).__name__
    if isinstance(returned, list | tuple):
        if len(results := list(returned)) == count:
            return results
        actual = f"{len(results)} results"
    text = (
        f"the function returned {actual} for {count} requests; return one result per request, "
        "in a list or tuple"
    )
    return [TypeError(text)] * count


def _reply(request: Request, result: Any, delay: QueueDelay | None) -> tuple[BaseException | None, Message]:
    """Return the error that a result is, or that its serialization raises, and the reply."""
    error: BaseException
    try:
        if not request.reply_to and isinstance(result, _NOT_RUN):
            raise TypeError(f"the function returned {result!r:.200}, which has not run; use a plain function")
        if not isinstance(result, BaseException):
            return None, message.reply(request, result if request.reply_to else None, "", delay)
        error = result
    except BaseException as not_serializable:  # the result's own methods may raise anything
        error = not_serializable
    return error, message.reply(request, None, _describe(error), delay)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException as unprintable:  # of the error's own ``__str__``
        return f"{type(error).__name__}, whose text raises {type(unprintable).__name__}"


def _handle(number: int, handler: Callable[..., object]) -> None:
    """Handle a signal in this process; one that the function forks can be terminated as before."""
    previous, masks = signal.signal(number, handler), threading.local()

    def hold() -> None:  # one that arrives before the child has its handler back would be lost
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        if signal.getsignal(number) is handler:
            signal.signal(number, previous)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=restore)


def serve(
    function: Callable[[Any], Any],
    queue: Queue | str,
    url: BrokerUrl,
    batch: Batch = Batch(),  # noqa: B008 - frozen
    overflow: Overflow | None = None,
    *,
    requests: bool = False,
) -> None:
    """Run a function as a worker until SIGTERM or SIGINT; then finish the current batch and return.

    Call it in the main thread, after the model is loaded. While a batch of more than 0.2 s runs, its worker
    gets no other request, so that none waits behind it while another worker is idle. Shorter batches are
    prefetched; what waits behind one that runs longer than usual goes back to the queue (RabbitMQ).

    ``url`` is as for `Client`, ``queue`` the queue of requests or its name, the rest as for `Worker`.

    Raises:
        BrokerRefusedError: the broker refuses the connection.
        ConnectionError: the broker was unreachable for 15 minutes.
        RuntimeError: this is not the main thread, or a child process imports the main module.
        TypeError: the function, or that of ``overflow``, is a coroutine function.
        ValueError: the URL cannot be parsed.
    """
    for called in (function, overflow.run if overflow else function):
        if any(map(inspect.iscoroutinefunction, (called, type(called).__call__))):
            name = getattr(called, "__name__", repr(called))
            raise TypeError(f"{name} is a coroutine function; use a plain function")
    # ``_inheriting``: a child process imports the main module; multiprocessing checks its own calls so.
    is_child = getattr(multiprocessing.current_process(), "_inheriting", False)
    if is_child or threading.current_thread() is not threading.main_thread():
        raise RuntimeError('call serve in the main thread, under if __name__ == "__main__":')
    queue = Queue(queue) if isinstance(queue, str) else queue
    watchdog, cost = Watchdog(), DeletionCost.from_environment()
    cost_stopped = cost.start() if cost is not None else None
    try:
        consumer = transports.consumer(url, queue, prefetch=1, watchdog=watchdog)
        try:
            worker = Worker(
                consumer,
                function,
                batch,
                overflow,
                requests=requests,
                agent=Agent.from_environment(),
                on_working=cost.set_working if cost is not None else lambda _: None,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                _handle(number, lambda *_: worker.drain())
            worker.run()
        except BaseException:
            consumer.stop()  # it would go on to take requests
            consumer.close(_FLUSH_SECONDS)
            raise
    finally:
        if cost_stopped is not None:
            cost_stopped.set()
        watchdog.close()
