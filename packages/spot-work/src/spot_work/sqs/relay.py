"""The watchdog's part for SQS: it extends visibility timeouts, so that a busy worker's requests stay hidden.

A worker sends JSON lines: first the queue, then a receipt that it has in flight or no longer has. It gets a
line for each `Extension`. The monotonic clocks of both processes are the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from typing import Any, Final

from spot_work.sqs.address import CALL_ERRORS, address_of, describe
from spot_work.sqs.visibility import EXTENSIONS_PER_TIMEOUT, Extension, batches, extend

log: Final = logging.getLogger("spot_work")

_ACCEPT_SECONDS: Final = 10.0


async def listen(url: str) -> int:
    """Return a loopback port for one connection of the worker of a queue at ``url``."""
    client = await asyncio.to_thread(address_of(url).client)
    is_taken = asyncio.Event()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_taken.is_set():
            is_taken.set()
            server.close()
            await _serve(client, reader, writer)
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    asyncio.get_running_loop().call_later(_ACCEPT_SECONDS, server.close)
    return int(server.sockets[0].getsockname()[1])


async def _serve(client: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if not (line := await reader.readline()):
        return
    receipts: dict[str, None] = {}
    task = asyncio.get_running_loop().create_task(_extend_all(client, json.loads(line), receipts, writer))
    try:
        while line := await reader.readline():
            change = json.loads(line)
            receipts.pop(change.get("remove", ""), None)
            if receipt := change.get("add"):
                receipts[receipt] = None
    except ConnectionError:
        pass  # the worker has ended
    finally:
        task.cancel()


async def _extend_all(
    client: Any, queue: dict[str, Any], receipts: dict[str, None], writer: asyncio.StreamWriter
) -> None:
    name, queue_url, seconds = str(queue["name"]), str(queue["url"]), int(queue["seconds"])
    while True:
        await asyncio.sleep(seconds / EXTENSIONS_PER_TIMEOUT)
        for batch in batches(list(receipts)):
            try:
                extension = await asyncio.to_thread(extend, client, queue_url, seconds, batch)
            except CALL_ERRORS as error:
                log.warning("%s: visibility timeout not extended: %s", name, describe(error))
                continue
            for receipt in extension.lost:
                receipts.pop(receipt, None)
            _report(extension, writer)


def _report(extension: Extension, writer: asyncio.StreamWriter) -> None:
    """Send an extension; a worker that does not read gets only what is lost, so that nothing piles up."""
    if writer.transport.get_write_buffer_size():
        extension = dataclasses.replace(extension, hidden=())
    if extension.hidden or extension.lost:
        writer.write(json.dumps(dataclasses.asdict(extension)).encode() + b"\n")
