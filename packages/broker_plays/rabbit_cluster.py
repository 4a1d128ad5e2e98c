"""A RabbitMQ cluster of three nodes on loopback, in a network namespace of the caller's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from packages.rabbitmq import BrokerError, accepts_connections, installed

NODES: Final = 3
PORT: Final = 5672
_DISTRIBUTION_PORT: Final = 25672
_NAMES_PORT: Final = 4369
_START_SECONDS: Final = 180.0
_CONTROL_SECONDS: Final = 60.0


def in_own_network(command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` in a new network namespace with loopback only; needs root."""
    script = 'ip link set lo up && exec "$@"'
    return ["unshare", "--net", "sh", "-c", script, "sh", *command]


def address(node: int) -> str:
    """Return a node's address; nodes count from 0."""
    return f"127.0.0.{11 + node}"


class RabbitCluster:
    """Nodes with their own addresses and data, in ``folder``; raises `BrokerError` as `RabbitServer`."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self._program = str(installed())
        self._folder = folder
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{n + 1} = {_name(n)}\n" for n in range(NODES)
        )
        (folder / "plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(
            "loopback_users = none\nlog.file.level = info\ncluster_partition_handling = pause_minority\n"
            f"net_ticktime = 8\n{settings}cluster_formation.peer_discovery_backend = classic_config\n{peers}"
        )
        (folder / ".erlang.cookie").write_text("loopback-only")
        (folder / ".erlang.cookie").chmod(0o400)
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        with (folder / "output").open("ab") as output:
            self._names = subprocess.Popen(["epmd"], stdout=output, stderr=output)

    def start(self) -> None:
        """Start all nodes and wait until they accept connections."""
        for node in range(NODES):
            self._spawn(node)
        for node in range(NODES):
            self._wait(node)

    def restart(self, node: int) -> None:
        """Stop a node as its service manager does, and start it again."""
        server = self._servers[node]
        server.terminate()
        server.wait(_START_SECONDS)
        self._spawn(node)
        self._wait(node)

    def control(self, node: int, *arguments: str) -> str:
        """Run ``rabbitmqctl`` against a node and return its output."""
        command = [str(Path(self._program).with_name("rabbitmqctl")), "-q", *arguments]
        done = subprocess.run(
            command, env=self._environment(node), capture_output=True, text=True, timeout=_CONTROL_SECONDS
        )
        if done.returncode:
            raise BrokerError(f"rabbitmqctl {' '.join(arguments)}: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout

    def evaluate(self, node: int, expression: str) -> str:
        """Return the value of an Erlang expression on a node."""
        return self.control(node, "eval", expression)

    def cut_off(self, node: int) -> None:
        """Drop every packet between a node and the others."""
        for rule in _rules(node):
            _iptables("-A", *rule)

    def join_again(self, node: int) -> None:
        """Let packets through again."""
        for rule in _rules(node):
            _iptables("-D", *rule)

    def output(self) -> str:
        """Return the end of what the nodes wrote."""
        return (self._folder / "output").read_text(errors="replace")[-3000:]

    def remove(self) -> None:
        """Kill all nodes and delete their files."""
        for server in self._servers.values():
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        self._names.kill()
        self._names.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, node: int) -> None:
        with (self._folder / "output").open("ab") as output:
            self._servers[node] = subprocess.Popen(
                [self._program],
                env=self._environment(node),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _wait(self, node: int) -> None:
        end = time.monotonic() + _START_SECONDS
        while not accepts_connections(address(node), PORT):
            if self._servers[node].poll() is not None or time.monotonic() > end:
                raise BrokerError(f"node {node} did not start: {self.output()}")
            time.sleep(0.1)

    def _environment(self, node: int) -> dict[str, str]:
        folder = self._folder / f"node-{node}"
        numbers = ",".join(address(node).split("."))
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            "ERL_CRASH_DUMP": str(folder / "crash"),
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODENAME": _name(node),
            "RABBITMQ_NODE_IP_ADDRESS": address(node),
            "RABBITMQ_NODE_PORT": str(PORT),
            "RABBITMQ_DIST_PORT": str(_DISTRIBUTION_PORT + node),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"+S 1:1 +sbwt none -kernel inet_dist_use_interface {{{numbers}}} "
                f"-kernel inet_dist_connect_options [{{ip,{{{numbers}}}}}]"
            ),
        }


def _name(node: int) -> str:
    return f"rabbit{node}@{address(node)}"  # the name server knows the first part only


def _rules(node: int) -> list[list[str]]:
    peers = [address(peer) for peer in range(NODES) if peer != node]
    pairs = [(address(node), peer) for peer in peers] + [(peer, address(node)) for peer in peers]
    return [["INPUT", "-s", source, "-d", target, "-j", "DROP"] for source, target in pairs]


def _iptables(*arguments: str) -> None:
    subprocess.run(["iptables", "-w", *arguments], check=True, capture_output=True)


def may_have_own_network() -> bool:
    """Return whether this process may create a network namespace with firewall rules."""
    probe = ["iptables", "-A", "INPUT", "-s", address(0), "-d", address(1), "-j", "DROP"]
    try:
        return not subprocess.run(in_own_network(probe), capture_output=True).returncode
    except OSError:
        return False
