"""A private RabbitMQ server on loopback that can be started, killed and restarted, and its fixture."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the script in PATH changes the user
PROGRAM: Final = "GPU_SPOT_RABBITMQ"
_START_SECONDS: Final = 120.0


class BrokerError(Exception):
    """There is no server, or it does not start; the text says what to do, or its log."""


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def installed() -> Path:
    """Return the path of the server program; raise `BrokerError` if it is not installed.

    ``GPU_SPOT_RABBITMQ`` names another one: a newer version, or a script that starts one.
    """
    if program := os.environ.get(PROGRAM):
        return Path(program)
    if not _SERVER.exists() or shutil.which("epmd") is None:  # Erlang's port mapper, which it needs
        raise BrokerError(
            f"no RabbitMQ server at {_SERVER}; install it on Debian or Ubuntu with "
            "apt-get install rabbitmq-server"
        )
    return _SERVER


class RabbitServer:
    """A server with its own name, data (in ``folder``) and ports, on loopback only.

    ``variables`` are of its application ``rabbit``, by name. Raises `BrokerError` if it is not installed, and
    with its log if it does not start.
    """

    def __init__(self, folder: Path, **variables: int) -> None:
        self._program = str(installed())
        self._folder = folder
        self.port, self._names_port, distribution = free_port(), free_port(), free_port()
        (folder / "plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text("loopback_users = none\nlog.file.level = info\n")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"gpu-spot-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(
                ["+S 2:2 +sbwt none", *(f"-rabbit {name} {value}" for name, value in variables.items())]
            ),
        }
        self._server: subprocess.Popen[bytes] | None = None
        self._names: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL with the default user of a new server."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        if self._names is None:
            self._names = self._name_server()
        with (self._folder / "output").open("ab") as output:
            self._server = subprocess.Popen(
                [self._program],
                cwd=self._folder,  # for the dump of a crash
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        end = time.monotonic() + _START_SECONDS
        while not accepts_connections("127.0.0.1", self.port):
            if self._server.poll() is not None or time.monotonic() > end:
                log = (self._folder / "output").read_text(errors="replace")[-2000:]
                raise BrokerError(f"rabbitmq-server did not start: {log}")
            time.sleep(0.1)

    def has_queue(self, queue: str) -> bool:
        """Return whether a quorum queue's name is on disk.

        RabbitMQ writes it half a second late. If killed before, it restarts the queue as a new member that
        never finds a leader (rabbitmq-server, issues 15725 and 10070); a client cannot repair that.
        """
        name = f"%2F_{queue}".encode()
        files = self._folder.glob("data/*/quorum/*/names.dets")
        return any(bytes([len(name)]) + name in file.read_bytes() for file in files)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a failed machine."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()

    def remove(self) -> None:
        """Kill the server and its name server, and delete its files."""
        if self._server is not None and self._server.poll() is None:
            self.kill()
        if self._names is not None:
            self._names.kill()
            self._names.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _name_server(self) -> subprocess.Popen[bytes]:
        """Start Erlang's name server as our child; one started by the broker would outlive it as a daemon."""
        with (self._folder / "output").open("ab") as output:
            names = subprocess.Popen(["epmd"], env=self._environment, stdout=output, stderr=output)
        end = time.monotonic() + _START_SECONDS
        while not _listens(self._names_port):
            if names.poll() is not None or time.monotonic() > end:
                raise BrokerError(f"epmd does not listen at port {self._names_port}")
            time.sleep(0.02)
        return names


def accepts_connections(host: str, port: int) -> bool:
    """Return whether a broker at an address answers the protocol's header."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0) as connection:
        connection.settimeout(5.0)
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return bool(connection.recv(1))
    return False


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


# pika 1.4.4 leaves the socket of a refused or reset connection to the collector.
_LEFT_SOCKETS = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore sockets that clients of a broker left open."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item.module, RabbitServer.__name__):
            item.add_marker(_LEFT_SOCKETS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A RabbitMQ server of a module's tests."""
    started = RabbitServer(tmp_path_factory.mktemp("broker"))
    try:
        started.start()
        yield started
    finally:
        started.remove()
        gc.collect()  # sockets that are left open are not another test's
