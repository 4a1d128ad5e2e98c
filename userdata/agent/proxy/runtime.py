"""HAProxy's runtime socket: commands, and its statistics and server states as objects."""

from __future__ import annotations

import csv
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine.errors import AgentError
from userdata.agent.proxy.haproxy_config import BACKEND

_TIMEOUT_SECONDS: Final = 5.0
_MAX_BYTES: Final = 1 << 24
_CODES: Final = ("hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx", "hrsp_other")
_SLOW: Final = ("L4TOUT", "L7TOUT")
_MAINTENANCE: Final = 0x01 | 0x02 | 0x20
"""In maintenance, and not only declared as ``disabled`` (0x04, which stays set). Source: HAProxy's management
manual, "show servers state"."""


class HaproxyUnavailableError(AgentError):
    """HAProxy does not answer on its socket."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server of the table: its address, and whether it is in maintenance."""

    name: str
    address: str
    is_disabled: bool


@dataclass(frozen=True, slots=True)
class StatisticsLine:
    """A line of the statistics, of a server or of the whole backend; counts are since HAProxy's start.

    Attributes:
        waiting: Requests in its queue.
        in_flight: Requests at it; those of the backend contain the waiting ones.
        total: Requests (backend) or attempts to connect (server).
        responses: Responses whose header has arrived.
        errors: Responses with a status of 5xx; those of the backend contain HAProxy's.
        lost: Requests whose worker closed the connection; those that were repeated, too, but not those whose
            caller got a closed connection in place of a 502, see `Counts.state`.
        cut: Those of ``lost`` whose response had begun; and those whose caller got a closed connection, if
            the worker's was reset.
        unanswered: Requests that no server took (backend).
        aborted: Requests whose caller closed the connection.
        repeated: Requests that went to another server.
        is_up: Whether it takes requests.
        received: Bytes of responses.
        is_silent: Its check was not answered, or not accepted, in time, while its host's agent answered; as
            of a server that answers one request at a time and has one.
        is_weakened: It will be taken out if that goes on, or has been.
    """

    name: str
    waiting: int
    in_flight: int
    total: int
    responses: int
    errors: int
    lost: int
    cut: int
    unanswered: int
    aborted: int
    repeated: int
    is_up: bool
    received: int = 0
    is_silent: bool = False
    is_weakened: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """The backend's line, and those of its servers by name."""

    backend: StatisticsLine
    servers: dict[str, StatisticsLine]

    @property
    def waiting(self) -> int:
        """Requests in all queues."""
        return self.backend.waiting + sum(line.waiting for line in self.servers.values())

    @property
    def in_flight(self) -> int:
        """Requests at workers."""
        return sum(line.in_flight for line in self.servers.values())


class RuntimeSocket:
    """Sends commands to the socket at ``path``; each has a connection of its own."""

    def __init__(self, path: Path, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._path = path
        self._timeout = timeout

    def send(self, command: str) -> str:
        """Return the response to a command.

        Raises:
            HaproxyUnavailableError: no connection, or no complete response in time.
        """
        received = b""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._timeout)
                connection.connect(str(self._path))
                connection.sendall(f"{command}\n".encode())
                while chunk := connection.recv(1 << 16):
                    received += chunk
                    if len(received) > _MAX_BYTES:
                        raise OSError(f"the response has more than {_MAX_BYTES} bytes")
        except OSError as error:
            raise HaproxyUnavailableError(f"{self._path}: {command}: {error}") from None
        return received.decode("utf-8", "replace").strip()

    def change(self, command: str) -> None:
        """Send a command that changes something; its response is empty, or one of the lines that say so.

        Raises:
            AgentError: HAProxy refuses the command, or `HaproxyUnavailableError`.
        """
        response = self.send(command)
        if response and not response.startswith(("IP changed from", "port changed", "no need to change")):
            raise AgentError(f"haproxy: {command}: {response.splitlines()[0]}")

    def process(self) -> str:
        """Return the id of HAProxy's process: a new one has lost all addresses and counts."""
        for line in self.send("show info").splitlines():
            name, _, value = line.partition(": ")
            if name == "Pid":
                return value
        raise HaproxyUnavailableError(f"{self._path}: show info has no Pid")

    def statistics(self) -> Statistics:
        """Return the statistics of the backend and its servers."""
        return parse_statistics(self.send("show stat").splitlines())

    def servers(self) -> list[ServerState]:
        """Return the server table."""
        return parse_servers(self.send(f"show servers state {BACKEND}").splitlines())


def parse_statistics(lines: Sequence[str]) -> Statistics:
    """Parse the CSV of ``show stat``; raise `HaproxyUnavailableError` if the backend is not in it."""
    if not lines:
        raise HaproxyUnavailableError("the response to show stat is empty")
    records = csv.DictReader([lines[0].lstrip("# "), *lines[1:]])
    parsed = {r["svname"]: _line(r) for r in records if r["pxname"] == BACKEND}
    backend = parsed.pop("BACKEND", None)
    if backend is None:
        raise HaproxyUnavailableError(f"show stat: no backend {BACKEND}")
    return Statistics(backend, parsed)


def _line(record: dict[str, str]) -> StatisticsLine:
    def count(name: str) -> int:
        return int(record[name] or 0)

    return StatisticsLine(
        name=record["svname"],
        waiting=count("qcur"),
        in_flight=count("scur"),
        total=count("stot"),
        responses=sum(map(count, _CODES)),
        errors=count("hrsp_5xx"),
        lost=count("eresp"),
        cut=count("srv_abrt"),
        unanswered=count("econ"),
        aborted=count("cli_abrt"),
        repeated=count("wredis"),
        is_up=record["status"].startswith("UP"),
        received=count("bout"),
        is_silent=_last(record, "check_status") in _SLOW and _last(record, "agent_status") == "L7OK",
        is_weakened=count("check_health") < count("check_rise") + count("check_fall") - 1,
    )


def _last(record: dict[str, str], name: str) -> str:
    """Return the status of the last check that has ended; one that runs is marked."""
    return record.get(name, "").removeprefix("* ")


def parse_servers(lines: Iterable[str]) -> list[ServerState]:
    """Parse the response to ``show servers state``; lines of other versions' fields have a header, too."""
    header: list[str] = []
    servers = []
    for line in lines:
        if line.startswith("#"):
            header = line.lstrip("# ").split()
        elif header and line.strip():
            fields = dict(zip(header, line.split(), strict=False))
            is_disabled = bool(int(fields["srv_admin_state"]) & _MAINTENANCE)
            servers.append(ServerState(fields["srv_name"], fields["srv_addr"], is_disabled))
    return servers
