"""HAProxy processes, each under the agent's supervisor in a thread."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from contracts.agent.config import HttpProxy
from contracts.registry.proxy_state import ProxyState
from pulumi_on_moto.errors import LocalCloudError
from userdata.agent.machine.clock import Clock
from userdata.agent.proxy import haproxy_config
from userdata.agent.proxy.discovery import HttpHost
from userdata.agent.proxy.haproxy_config import Paths
from userdata.agent.proxy.runtime import RuntimeSocket
from userdata.agent.proxy.supervisor import ProxySupervisor

_STARTS_IN = 10.0


def installed() -> str:
    """Return HAProxy's program; raise ``LocalCloudError`` if there is none."""
    program = shutil.which("haproxy")
    if program is None:
        raise LocalCloudError("no haproxy on PATH; on Debian: apt-get install haproxy")
    return program


class RealProxy:
    """HAProxy at an address, with the agent's supervisor; ``states`` are those that it wrote."""

    def __init__(
        self,
        proxy: HttpProxy,
        address: str,
        folder: Path,
        discover: Callable[[], tuple[HttpHost, ...]],
        clock: Clock,
        discover_seconds: float,
    ) -> None:
        folder.mkdir()
        self.address = address, proxy.listen_port
        self.states: list[ProxyState] = []
        paths = Paths(folder / "haproxy.sock", folder / "values.map")
        paths.values.write_text(haproxy_config.first_values(proxy))
        config = folder / "haproxy.cfg"
        config.write_text(haproxy_config.render(proxy, paths, address=address))
        self._log, self._config, self._path = folder / "haproxy.log", config, paths.socket
        self._process = self._start()
        self._socket = RuntimeSocket(paths.socket)
        self._supervisor = ProxySupervisor(
            proxy, paths, discover, self._write, clock, _in_thread, discover_seconds
        )
        self._thread = threading.Thread(target=self._supervisor.run, daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._path.unlink(missing_ok=True)
        # -dR: with another HAProxy on the port it fails; else the kernel gives each a part of the requests.
        command = [installed(), "-W", "-db", "-dR", "-f", str(self._config)]
        with self._log.open("a") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        end = time.monotonic() + _STARTS_IN
        while not self._path.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise LocalCloudError(f"haproxy has not started: {self._log.read_text()}")
            time.sleep(0.02)
        return process

    def restart(self) -> None:
        """Kill HAProxy and start it again, as its unit does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = self._start()

    def _write(self, state: ProxyState, ready: int) -> None:
        self.states.append(state)

    def count_ready(self) -> int:
        """Return how many workers HAProxy sends requests to."""
        return sum(line.is_up for line in self._socket.statistics().servers.values())

    def state(self) -> ProxyState:
        state = self._supervisor.state
        if state is None:
            raise LocalCloudError("haproxy has no statistics")
        return state

    def close(self) -> None:
        self._supervisor.stop()
        self._thread.join()
        self._process.terminate()
        self._process.wait()


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()
