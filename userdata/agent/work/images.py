"""The images that the agent has pulled: a record on the disk, by which old ones go, also after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from userdata.agent.machine import files
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.host import Host
from userdata.agent.work import containers

GRACE_SECONDS: Final = 3600.0
"""Time that an image stays after its pull: its container may not have been started yet."""


@dataclass(frozen=True)
class PulledImages:
    """What this machine's agent has pulled; other images are not the agent's to remove.

    Args:
        host: runs Docker.
        clock: tells when an image was pulled.
        path: of the record, ``{image: epoch seconds of its last pull}``; without one nothing was pulled.
    """

    host: Host
    clock: Clock
    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pull(self, image: str, pull: Callable[[], None]) -> None:
        """Remove the images that were pulled before and that no container uses, then pull one.

        The image that is in use meanwhile stays until the next pull, to go back to.

        Raises:
            AgentError: as ``pull`` does.
        """
        with self._lock:
            pulled, now = self._read(), self.clock.wall()
            for old in [name for name, at in pulled.items() if not 0.0 <= now - at < GRACE_SECONDS]:
                # Docker refuses to remove what a container uses, running or not.
                if old != image and containers.remove_image(self.host, old):
                    del pulled[old]
            # Before the pull: one that is cut short leaves layers, and the next start of the agent.
            files.write_json(self.path, {**pulled, image: now})
        pull()

    def _read(self) -> dict[str, float]:
        stored = files.read_json(self.path) or {}
        return {name: float(at) for name, at in stored.items() if isinstance(at, int | float)}
