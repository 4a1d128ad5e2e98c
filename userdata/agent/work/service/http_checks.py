"""What an instance's agent knows and reports of its HTTP workers: readiness, drain, connections.

Proxies ask it each second for each worker, by HAProxy's agent checks: a line with the slot's number, answered
with one line. Source: HAProxy's configuration manual, ``agent-check``. ``ready up`` sends requests there,
``drain`` sends no new ones and lets those in flight run on.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpWorkers
from contracts.limits import READINESS_SECONDS
from userdata.agent.aws import plain_http
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock

READY: Final = "ready up"
DRAIN: Final = "drain"
SEEN_SECONDS: Final = 3.0
"""Time after a drain in which a proxy that has not asked before may ask: they do each second."""
PROXY_SECONDS: Final = 30.0
"""Time after which a proxy that asks no more is gone."""
_PROBE_SECONDS: Final = 1.0
"""Between two probes of a worker."""
_LINE_BYTES: Final = 16
_LINE_TIMEOUT_SECONDS: Final = 1.0
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"


@dataclass(slots=True)
class _SlotState:
    """A slot's worker. Single attributes are set, so that a signal handler needs no lock."""

    start: int = 0
    """Number of its starts."""
    is_running: bool = False
    is_ready: bool = False
    draining_since: float | None = None
    """Monotonic seconds."""


class HttpChecks:
    """Readiness and drain of the workers in ``slots``, by number.

    Args:
        http: ports and readiness path.
        slots: the numbers of the slots.
        clock: monotonic time.
        address: address of the workers, where several instances share a machine; empty: all of this one.
        connections: returns how many connections to a port are open.
    """

    def __init__(
        self,
        http: HttpWorkers,
        slots: Iterable[int],
        clock: Clock,
        address: str = "",
        connections: Callable[[int], int] | None = None,
    ) -> None:
        self._http = http
        self._clock = clock
        self._address = address
        self._connections = connections or (lambda port: open_connections(port, address))
        self._slots = {slot: _SlotState() for slot in slots}
        self._responses: dict[tuple[int, str], tuple[float, str]] = {}
        """When each proxy, by its address, last asked for a slot (monotonic seconds), and the answer."""
        self._server: _CheckServer | None = None
        self._is_closed = threading.Event()

    def port(self, slot: int) -> int:
        """Return the port of a worker."""
        return self._http.port + slot

    def environment(self, slot: int) -> dict[str, str]:
        """Return the variables by which a worker finds its port."""
        return {"PORT": str(self.port(slot)), "GPU_SPOT_PORT": str(self.port(slot))}

    def record_start(self, slot: int) -> None:
        """Record that a new worker runs in a slot; it is not ready."""
        state = self._slots[slot]
        state.start += 1
        state.is_ready, state.draining_since, state.is_running = False, None, True

    def record_end(self, slot: int) -> None:
        """Record that a slot's worker has ended."""
        state = self._slots[slot]
        state.is_running = state.is_ready = False

    def drain(self, slot: int) -> None:
        """Let the proxies send no new requests to a slot's worker; safe in a signal handler."""
        state = self._slots[slot]
        if state.draining_since is None:
            state.draining_since = self._clock.monotonic()

    def is_ready(self, slot: int) -> bool:
        """Return whether a worker has become ready since its start."""
        return self._slots[slot].is_ready

    def is_drained(self, slot: int) -> bool:
        """Return whether all proxies have seen the drain and no request is in flight.

        A busy proxy asks late: until it has, its requests would be refused.
        """
        now, since = self._clock.monotonic(), self._slots[slot].draining_since
        if since is None or now - since < SEEN_SECONDS:
            return False
        unaware = any(
            number == slot and response == READY and now - at < PROXY_SECONDS
            for (number, _), (at, response) in list(self._responses.items())
        )
        return not unaware and self._connections(self.port(slot)) == 0

    def respond(self, line: str, proxy: str = "") -> str:
        """Return the answer to a check of a proxy; a slot that is not here takes no requests."""
        slot = int(line) if line.isdecimal() else -1
        state = self._slots.get(slot)
        takes_requests = state is not None and state.is_ready and state.draining_since is None
        response = READY if takes_requests else DRAIN
        if state is not None:
            self._responses[slot, proxy] = self._clock.monotonic(), response
        return response

    def probe_once(self, *slots: int) -> None:
        """Ask the workers in ``slots``, default all, that are not ready yet, once each."""
        for slot in slots or self._slots:
            state = self._slots[slot]
            if not state.is_running or state.is_ready:
                continue
            start = state.start
            is_ready = probe(self._http, self.port(slot), self._address or "127.0.0.1")
            if is_ready and state.start == start and self._slots[slot].is_running:
                state.is_ready = True
                log.info("worker ready", slot=slot, port=self.port(slot))

    def serve(self) -> None:
        """Answer proxies and ask workers, in a thread for each, until `close`.

        Raises:
            OSError: the port is taken.
        """
        self._server = _CheckServer((self._address, self._http.check_port), self.respond)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        for slot in self._slots:
            threading.Thread(target=self._probe, args=(slot,), daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._is_closed.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _probe(self, slot: int) -> None:
        while not self._is_closed.wait(_PROBE_SECONDS):
            self.probe_once(slot)


class _CheckServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], respond: Callable[[str, str], str]) -> None:
        self.respond = respond
        super().__init__(address, _CheckHandler)


class _CheckHandler(socketserver.StreamRequestHandler):
    timeout = _LINE_TIMEOUT_SECONDS
    server: _CheckServer

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the proxy has gone
            line = self.rfile.readline(_LINE_BYTES).decode("ascii", "replace")
            if line.endswith("\n"):
                response = self.server.respond(line.strip(), str(self.client_address[0]))
                self.wfile.write(f"{response}\n".encode())


def open_connections(port: int, address: str = "", tables: Iterable[Path] = _TABLES) -> int:
    """Return how many established TCP connections to a local port this machine has.

    ``address``, an IPv4 address, counts only those to it. Source: Linux, ``Documentation/networking/
    proc_net_tcp.rst`` (local address as hexadecimal words in the machine's byte order, port, state).
    """
    address_words = "".join(f"{int(part):02X}" for part in reversed(address.split("."))) if address else ""
    count = 0
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue  # no IPv6
        for line in lines:
            _, local, _, state = line.split(maxsplit=4)[:4]
            local_address, _, local_port = local.partition(":")
            is_here = int(local_port, 16) == port and local_address.endswith(address_words)
            count += is_here and state == _ESTABLISHED
    return count


def probe(http: HttpWorkers, port: int, address: str) -> bool:
    """Return whether the worker on a port is ready: 2xx from its path, with gRPC an open port."""
    try:
        if http.is_grpc:
            socket.create_connection((address, port), READINESS_SECONDS).close()
            return True
        status, _, _ = plain_http.request(
            (address, port), "GET", http.readiness, {}, READINESS_SECONDS, may_be_long=True
        )
    except OSError:
        return False
    return 200 <= status < 300
