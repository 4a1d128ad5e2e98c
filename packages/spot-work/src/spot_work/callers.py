"""A client for asyncio: `Client`, with its calls as coroutines."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from spot_work.client import Client
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl
from spot_work.request.message import Priority
from spot_work.request.trace import TraceCarrier


class AsyncClient:
    """Sends requests to a queue and receives the replies in an event loop.

    The connection runs in `Client`'s threads; nothing here blocks the event loop. Arguments, errors and
    guarantees are those of `Client`.
    """

    def __init__(self, url: BrokerUrl, queue: Queue | str) -> None:
        self._url = url
        self._queue = queue
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        # A function that returns the URL may block, and SQS creates a reply queue first.
        making = ThreadPoolExecutor(1).submit(Client, self._url, self._queue)
        try:
            self._client = await asyncio.wrap_future(making)
        except asyncio.CancelledError:  # its thread goes on
            making.add_done_callback(lambda end: end.result().close())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def unmatched_replies(self) -> int:
        """Number of replies without an open request: duplicates, and those that arrived too late."""
        return self._open_client().unmatched_replies

    async def request(
        self,
        value: Any,
        timeout: float = 60.0,
        *,
        priority: Priority = "normal",
        trace: TraceCarrier | None = None,
    ) -> Any:
        """Send a request and return its reply; a cancelled call cancels the request."""
        return await self.submit(value, timeout, priority=priority, trace=trace)

    def submit(
        self,
        value: Any,
        timeout: float = 60.0,
        *,
        priority: Priority = "normal",
        trace: TraceCarrier | None = None,
    ) -> asyncio.Future[Any]:
        """Send a request and return a future of its reply; call it in a running event loop."""
        future = self._open_client().submit(value, timeout, priority=priority, trace=trace)
        return asyncio.wrap_future(future)

    async def close(self) -> None:
        """Close the connection; open requests raise `LostError`."""
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.close)

    def _open_client(self) -> Client:
        if self._client is None:
            raise RuntimeError("the client is not open; use it in async with AsyncClient(…)")
        return self._client
