"""A relay between a worker and a RabbitMQ broker that sends heartbeats while the worker is busy.

The relay forwards whole AMQP 0-9-1 frames, so that a heartbeat never comes between the parts of one. A frame
is a type (1 byte), a channel (2), the payload's length (4), the payload and an end (1). Source: AMQP 0-9-1
specification, 2.3.5.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import pika

HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
HEARTBEAT_SECONDS: Final = 10.0
"""The relay sends a heartbeat after this time without a frame of the worker's."""
_PROTOCOL_HEADER: Final = 8
_FRAME_HEADER: Final = 7
_MIN_FRAMES: Final = 3
"""Frames of a login, before which no heartbeat is allowed: start-ok, tune-ok, open."""
_HIGH_WATER: Final = 1 << 20
"""Bytes that wait for one side, above which nothing is read from the other."""
_ACCEPT_SECONDS: Final = 10.0


class _Side(asyncio.Protocol):
    """One of the two connections; what it receives is written to the other."""

    def __init__(self) -> None:
        self.peer: _Side | None = None
        self.transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the transport."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_HIGH_WATER)
        self.transport = transport

    def join(self, peer: _Side) -> None:
        """Start to forward in this direction."""
        self.peer = peer
        if self._early and peer.transport is not None:
            peer.transport.write(self._early)
        self._early = b""

    def data_received(self, data: bytes) -> None:
        """Forward bytes; those that came before the other side was connected wait."""
        if self.peer is None or self.peer.transport is None:
            self._early += data
        else:
            self.peer.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Close the other side, too, after what was received has been written."""
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def pause_writing(self) -> None:
        """Read nothing more from the other side."""
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other side again."""
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()


class WorkerSide(_Side):
    """The worker's connection: forwards whole frames, and a heartbeat when there were none for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._frames = 0
        self._is_greeted = False
        self._has_sent = False
        self._timer: asyncio.TimerHandle | None = None

    def join(self, peer: _Side) -> None:
        """Start to forward, and to send heartbeats."""
        super().join(peer)
        self._heartbeat()

    def data_received(self, data: bytes) -> None:
        """Forward the whole frames of what was received."""
        buffer = self._rest + data if self._rest else data
        end = self._whole(buffer)
        self._rest = buffer[end:]
        if end:
            self._has_sent = True
            super().data_received(buffer[:end] if end < len(buffer) else buffer)

    def connection_lost(self, error: Exception | None) -> None:
        """Stop the heartbeats and close the broker's side."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(error)

    def _whole(self, buffer: bytes) -> int:
        """Return the end of the last whole frame."""
        end = 0
        if not self._is_greeted:
            if len(buffer) < _PROTOCOL_HEADER:
                return 0
            self._is_greeted, end = True, _PROTOCOL_HEADER
        while len(buffer) - end > _FRAME_HEADER:
            size = _FRAME_HEADER + int.from_bytes(buffer[end + 3 : end + 7], "big") + 1
            if end + size > len(buffer):
                break
            end += size
            self._frames += 1
        return end

    def _heartbeat(self) -> None:
        broker = self.peer.transport if self.peer is not None else None
        if broker is None or broker.is_closing():
            return
        if not self._has_sent and self._frames >= _MIN_FRAMES and not broker.get_write_buffer_size():
            broker.write(HEARTBEAT)
        self._has_sent = False
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._heartbeat)


async def listen(url: str) -> int:
    """Return a loopback port whose next connection leads to the broker at ``url``; later ones are refused."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[WorkerSide] = loop.create_future()

    class Accepting(WorkerSide):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            if accepted.done():
                transport.close()
            else:
                accepted.set_result(self)

    server = await loop.create_server(Accepting, "127.0.0.1", 0)

    async def serve() -> None:
        try:
            worker = await asyncio.wait_for(accepted, _ACCEPT_SECONDS)
        except TimeoutError:
            return
        finally:
            server.close()
        await _connect(worker, url)

    task = loop.create_task(serve())
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)
    return int(server.sockets[0].getsockname()[1])


async def _connect(worker: WorkerSide, url: str) -> None:
    parameters = pika.URLParameters(url)
    options = parameters.ssl_options
    context: ssl.SSLContext | None = options.context if options else None
    name = (options.server_hostname or parameters.host) if options else None
    loop = asyncio.get_running_loop()
    broker = _Side()
    try:
        async with asyncio.timeout(parameters.socket_timeout or _ACCEPT_SECONDS):
            await loop.create_connection(
                lambda: broker, parameters.host, parameters.port, ssl=context, server_hostname=name
            )
    except (OSError, TimeoutError):
        if worker.transport is not None:
            worker.transport.close()  # the worker tries again
        return
    if worker.transport is None or worker.transport.is_closing():
        assert broker.transport is not None
        broker.transport.close()
        return
    broker.join(worker)
    worker.join(broker)


_TASKS: Final[set[asyncio.Task[None]]] = set()
