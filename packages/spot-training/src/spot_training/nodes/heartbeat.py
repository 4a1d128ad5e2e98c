"""The heartbeat of a node: a process beside its first rank, which no work of the training delays.

``python -m spot_training.nodes.heartbeat FOLDER NAME TOKEN PARENT`` ends with its parent, and then removes
the node. It also observes the other nodes' heartbeats and removes those that are lost.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from spot_training.errors import say
from spot_training.nodes.membership import remove
from spot_training.nodes.registry import NodeRegistry

HEARTBEAT_SECONDS: Final = 1.0
"""Time between two heartbeats of a node."""
LOST_SECONDS: Final = 8.0
"""A node without a new heartbeat for so long is lost."""
_MAX_GAP_SECONDS: Final = 3.0
"""An observer that did not look for so long was itself stopped, and starts again."""


class HeartbeatObserver:
    """Remembers since when each heartbeat has not changed."""

    def __init__(self) -> None:
        self._unchanged: dict[str, tuple[str, float]] = {}
        self._last_at: float | None = None

    def lost(self, heartbeats: Mapping[str, str], now: float) -> list[str]:
        """Return the tokens that are lost; ``heartbeats``: the newest by token; ``now``: monotonic."""
        if self._last_at is None or now - self._last_at > _MAX_GAP_SECONDS:
            self._unchanged = {}
        self._last_at = now
        self._unchanged = {
            token: before
            if (before := self._unchanged.get(token)) is not None and before[0] == heartbeat
            else (heartbeat, now)
            for token, heartbeat in heartbeats.items()
        }
        return [token for token, (_, since) in self._unchanged.items() if now - since > LOST_SECONDS]


_POLL_SECONDS: Final = 0.25


def run(
    registry: NodeRegistry,
    name: str,
    token: str,
    is_parent_alive: Callable[[], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Send heartbeats and remove lost nodes until the parent has ended; then remove this node."""
    observer, count, next_at = HeartbeatObserver(), 0, clock()
    while is_parent_alive():
        if clock() >= next_at:
            next_at, count = clock() + HEARTBEAT_SECONDS, count + 1
            try:
                registry.send_heartbeat(token, count)
                remove_lost(registry, token, observer, clock())
            except (OSError, ValueError) as error:  # the others decide whether this node is lost
                say(f"{registry.root}: no heartbeat: {error}")
        sleep(_POLL_SECONDS)
    try:
        registry.update(partial(remove, token=token, reason=f"node {name} has ended"))
        registry.forget(token)
    except (OSError, ValueError) as error:
        say(f"{registry.root}: {name} is not removed, the others wait until it is lost: {error}")


def remove_lost(registry: NodeRegistry, token: str, observer: HeartbeatObserver, now: float) -> None:
    """Remove the nodes without a heartbeat; ``token``: of this node, which observes."""
    membership = registry.read()
    members = membership.world.nodes if membership.world else membership.expected
    nodes = {node.token: node for node in (*membership.waiting, *members) if node.token != token}
    for lost in observer.lost({process: registry.last_heartbeat(process) for process in nodes}, now):
        name = nodes[lost].name
        say(f"node {name} is lost: no heartbeat for {LOST_SECONDS:.0f} s")
        registry.update(partial(remove, token=lost, reason=f"node {name} is lost"))
        registry.forget(lost)


def main(folder: str, name: str, token: str, parent: str) -> None:
    """Run the process."""
    for number in (signal.SIGTERM, signal.SIGINT):  # a launcher's signal to the group: the parent decides
        signal.signal(number, signal.SIG_IGN)
    run(NodeRegistry(Path(folder)), name, token, lambda: os.getppid() == int(parent))


if __name__ == "__main__":
    main(*sys.argv[1:])
