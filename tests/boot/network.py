"""The network of the machines: namespaces of each machine and of the cloud, where this process listens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tests.boot import machine
from tests.boot.machine import Machine
from tests.served import answering

CLOUD: Final = "10.99.0.1"
METADATA: Final = "169.254.169.254"
FAILURES: Final[list[BaseException | None]] = []
"""Errors of our servers, other than those of a client that has gone."""
_NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET


class Network:
    """A bridge in a namespace of its own, with the cloud's addresses."""

    def __init__(self) -> None:
        # Without an address of its own a bridge takes a port's, and another one when that port goes: machines
        # that know the old one get no answer until their ARP entry ends, up to 50 s later.
        self._holder = machine.holder(
            "ip link add lan address 02:00:00:00:00:01 type bridge",
            "ip link set lan up",
            f"ip addr add {CLOUD}/24 dev lan",
            f"ip addr add {METADATA}/32 dev lan",
            "ip addr add 10.99.0.254/24 dev lan",
        )
        self._machines = 0

    def address(self) -> str:
        """Return an address for a new machine."""
        self._machines += 1
        return f"10.99.0.{1 + self._machines}"

    def join(self, joining: Machine) -> None:
        """Connect a machine that is not booted yet."""
        here, there = f"to{joining.address.rpartition('.')[2]}", joining.holder_pid
        for command in (
            f"ip link add {here} netns {self._holder.pid} type veth peer name eth0 netns {there}",
            f"nsenter --target={self._holder.pid} --net ip link set {here} master lan up",
            f"nsenter --target={there} --net ip addr add {joining.address}/24 dev eth0",
            f"nsenter --target={there} --net ip link set eth0 up",
            f"nsenter --target={there} --net ip route add default via {CLOUD}",
        ):
            subprocess.run(command.split(), check=True)

    def listen(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens in the cloud's namespace."""
        made: list[socket.socket] = []

        def enter() -> None:
            # The namespace is a thread's; a socket stays in the one in which it was made.
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = os.open(f"/proc/{self._holder.pid}/ns/net", os.O_RDONLY)
            try:
                if libc.setns(descriptor, _NEW_NETWORK) == 0:
                    made.append(socket.create_server((address, port), backlog=128))
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def close(self) -> None:
        """End the cloud's namespace, and with it the links to machines."""
        machine.end(self._holder)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(error := sys.exc_info()[1], OSError):
            FAILURES.append(error)


@contextlib.contextmanager
def serving(listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> Iterator[None]:
    """Answer requests at a socket while the body runs."""
    server = _Server(("", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    with answering(server):
        yield
