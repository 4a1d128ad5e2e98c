"""An HTTP service whose workers are pods: real workers and HAProxy; the list of pods is played."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpPods, HttpProxy, HttpWorkers
from rehearsal.http import play
from rehearsal.http.play import HttpScript
from rehearsal.http.play_clock import PlayClock
from rehearsal.http.proxies import RealProxy
from tests.waiting import wait_until
from userdata.agent.proxy.discovery import HttpHost

_PROXIES: Final = ("127.0.79.1", "127.0.79.2")
_NETWORK: Final = "127.0.78"
DISCOVER_SECONDS: Final = 0.2
END_SECONDS: Final = 2.0
"""From a pod's deletion to SIGTERM: its ``preStop`` hook."""


class Pods:
    """Workers, each at an address of its own; `listed` is what the API would list."""

    def __init__(self, script: HttpScript) -> None:
        self._script = script
        self._launched = 0
        self._running: dict[str, tuple[HttpHost, subprocess.Popen[bytes]]] = {}
        self._ends: list[threading.Thread] = []
        self._deleted: set[str] = set()

    def launch(self, load_seconds: float = 0.5) -> str:
        """Start a pod's worker, which loads its model for so long, and return the pod's name."""
        self._launched += 1
        address = f"{_NETWORK}.{self._launched}"
        variables = {"ADDRESS": address, "PORT": str(play.WORKER_PORT)}
        variables |= {"TOKEN_SECONDS": str(self._script.token_seconds), "LOAD_SECONDS": str(load_seconds)}
        process = subprocess.Popen(self._script.command, env={**os.environ, **variables})
        name = f"chat-{self._launched}"
        self._running[name] = HttpHost(name, address, time.time()), process
        return name

    def listed(self) -> tuple[HttpHost, ...]:
        return tuple(host for name, (host, _) in list(self._running.items()) if name not in self._deleted)

    def names(self) -> list[str]:
        return [host.name for host in self.listed()]

    def delete(self, name: str) -> None:
        """Delete a pod as Kubernetes does: it is being deleted at once, and gets SIGTERM after its hook."""
        self._deleted.add(name)
        _, process = self._running[name]
        end = threading.Timer(END_SECONDS, process.terminate)
        end.start()
        self._ends.append(end)

    def has_ended(self, name: str) -> bool:
        return self._running[name][1].poll() is not None

    def kill(self, name: str) -> None:
        """End a pod with its node; the API lists it for a while, as it does for a lost node."""
        self._running[name][1].kill()

    def close(self) -> None:
        for end in self._ends:
            end.join()
        for _, process in self._running.values():
            process.kill()
            process.wait()


class PodWorld:
    """Two proxies and the pods of one service."""

    def __init__(self, script: HttpScript, folder: Path) -> None:
        self.pods = Pods(script)
        clock = PlayClock(script.pace)
        settings = HttpProxy(
            HttpWorkers(play.WORKER_PORT),
            max_workers=2 * script.hosts,
            concurrency=script.concurrency,
            proxies=len(_PROXIES),
            idle_timeout_seconds=30,
            pods=HttpPods("research", "https://example.com", "not read here", "gpu-spot-dev"),
        )
        self.proxies = [
            RealProxy(
                settings, address, folder / f"proxy-{address}", self.pods.listed, clock, DISCOVER_SECONDS
            )
            for address in _PROXIES
        ]

    def wait_ready(self, count: int) -> None:
        wait_until(lambda: min(proxy.count_ready() for proxy in self.proxies) >= count)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.pods.close()


@contextlib.contextmanager
def world(script: HttpScript) -> Iterator[tuple[PodWorld, Path]]:
    """Start proxies and pods; yield them, ready, and their folder."""
    with (
        tempfile.TemporaryDirectory(prefix="gpu-spot-pods-") as name,
        contextlib.closing(PodWorld(script, Path(name))) as running,
    ):
        for _ in range(script.hosts):
            running.pods.launch()
        running.wait_ready(script.hosts)
        yield running, Path(name)
