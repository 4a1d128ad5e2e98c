"""The asyncio client and the task decorator, on a transport in memory with a real worker function."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spot_work import ExpiredError, LostError, WorkError, transports
from spot_work.callers import AsyncClient
from spot_work.queue.publisher import resolve_reply
from spot_work.queue.settings import Queue
from spot_work.request import message
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests
from support.waiting import wait_until

URL = "amqp://broker"


class MemoryPublisher:
    """Runs each request in a thread, through the messages' own serialization."""

    def __init__(self, function: Callable[[Any], Any], pending: PendingRequests) -> None:
        self._function = function
        self._pending = pending
        self._threads = ThreadPoolExecutor(8)
        self.cancelled: list[str] = []
        self.is_closed = False

    def check(self, message: Message) -> None:
        """Accept every size."""

    def send(self, request_id: str) -> None:
        request = self._pending.get(request_id)
        assert request is not None
        self._threads.submit(self._run, request.to_message("replies"))

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    def close(self) -> None:
        self.is_closed = True
        self._threads.shutdown(wait=False)

    def _run(self, sent: Message) -> None:
        request = message.read_request(sent, 1)
        try:
            reply = message.reply(request, self._function(request.value))
        except Exception as error:
            reply = message.reply(request, None, f"{type(error).__name__}: {error}")
        resolve_reply(self._pending, "jobs", reply)


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], list[MemoryPublisher]]:
    """Return a function that replaces the transport by one that runs a function."""

    def use(function: Callable[[Any], Any]) -> list[MemoryPublisher]:
        opened: list[MemoryPublisher] = []

        def publisher(url: str, queue: Queue, pending: PendingRequests) -> MemoryPublisher:
            assert (url, queue.name) == (URL, "jobs")
            opened.append(MemoryPublisher(function, pending))
            return opened[-1]

        monkeypatch.setattr(transports, "publisher", publisher)
        return opened

    return use


Publish = Callable[[Callable[[Any], Any]], list[MemoryPublisher]]


def test_many_requests_of_an_event_loop_get_their_own_replies(publish: Publish) -> None:
    opened = publish(lambda value: value * 2)

    async def run() -> list[int]:
        async with AsyncClient(URL, "jobs") as client:
            return await asyncio.gather(*(client.request(number) for number in range(200)))

    assert asyncio.run(run()) == [2 * number for number in range(200)]
    assert [publisher.is_closed for publisher in opened] == [True]


def test_errors_of_the_worker_and_expiry_reach_the_coroutine(publish: Publish) -> None:
    def fail(value: str) -> None:
        if value == "slow":
            time.sleep(1.5)
        raise ValueError("no image")

    publish(fail)

    async def run() -> None:
        async with AsyncClient(URL, "jobs") as client:
            with pytest.raises(WorkError, match="ValueError: no image"):
                await client.request("bad")
            with pytest.raises(ExpiredError):
                await client.request("slow", timeout=0.1)

    asyncio.run(run())


def test_a_cancelled_coroutine_cancels_the_request_and_the_loop_is_not_blocked(publish: Publish) -> None:
    opened = publish(lambda value: time.sleep(value))

    async def run() -> None:
        async with AsyncClient(URL, "jobs") as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.request(1.0), 0.05)
            while not opened[0].cancelled:
                await asyncio.sleep(0)

    asyncio.run(run())
    assert len(opened[0].cancelled) == 1


def test_requests_that_are_open_at_the_end_are_lost_and_a_closed_client_says_so(publish: Publish) -> None:
    publish(lambda value: time.sleep(value))

    async def run() -> None:
        client = AsyncClient(URL, "jobs")
        with pytest.raises(RuntimeError, match="not open"):
            await client.request(1)
        async with client:
            future = client.submit(0.5)
        with pytest.raises(LostError):
            await future
        await client.close()

    asyncio.run(run())


def test_a_client_that_is_cancelled_while_it_connects_is_closed(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, publisher, go = publish(str), transports.publisher, threading.Event()
    monkeypatch.setattr(transports, "publisher", lambda *arguments: go.wait(60) and publisher(*arguments))

    async def open_client() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), AsyncClient(URL, "jobs"):
                pass
        go.set()

    asyncio.run(open_client())
    wait_until(lambda: opened and opened[0].is_closed, 20)
