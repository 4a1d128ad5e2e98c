"""The nodes' document, heartbeats and the current world's lease, where all nodes see them.

Every name is opened each time: NFS then asks the server (nfs(5), "Close-to-open cache consistency"). The
document is changed under a lock of one file; heartbeats need none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from spot_training.errors import say
from spot_training.nodes import membership as rules
from spot_training.nodes.membership import Membership, NodeLimits, NodeWorld, TrainingNode
from spot_training.storage.files import Files
from spot_training.storage.lock import VALID_LEASE

FOLDER: Final = ".nodes"
"""In the directory of checkpoints."""
_DOCUMENT: Final = "nodes.json"
_LOCK: Final = "lock"
GATHER_SECONDS: Final = 30.0
"""How long enough nodes wait for more before the first world, and survivors for one that does not come."""
_POLL_SECONDS: Final = 0.25
_LOG_SECONDS: Final = 60.0


class NodeRegistry:
    """Reads and changes the membership of one training; raises ``OSError`` if the directory fails."""

    def __init__(self, root: Path) -> None:
        """``root``: of the checkpoints; it is created."""
        self.root, self._folder, self._files = root, root / FOLDER, Files()
        self._folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> Membership:
        """Return the present membership; a new one if there is none yet."""
        try:
            return rules.from_document(json.loads(self._files.read(self._folder / _DOCUMENT)))
        except FileNotFoundError:
            return Membership()

    def update(self, change: Callable[[Membership], Membership]) -> Membership:
        """Change the membership, alone among all nodes; return it."""
        with self._locked():
            before = self.read()
            after = change(before)
            if after != before:
                if before.world is not None and after.world != before.world:
                    self._files.remove(self.lease(before.number))  # fails its commits from here on
                if after.world is not None and after.world != before.world:
                    self._files.replace(self.lease(after.number), f"{VALID_LEASE}\n".encode())
                self._files.replace(self._folder / _DOCUMENT, json.dumps(asdict(after)).encode())
        return after

    def lease(self, number: int) -> Path:
        """Return the file of a world's lease, which is there while the world is the present one."""
        return self._folder / f"world-{number}"

    def send_heartbeat(self, token: str, count: int) -> None:
        """Write a heartbeat of a node's process."""
        self._heartbeat_file(token).write_text(str(count))

    def last_heartbeat(self, token: str) -> str:
        """Return the last heartbeat; empty if there is none, or if it is being written."""
        try:
            return self._heartbeat_file(token).read_text()
        except FileNotFoundError:
            return ""

    def forget(self, token: str) -> None:
        """Delete the heartbeat of a process that has ended."""
        with contextlib.suppress(FileNotFoundError):
            self._heartbeat_file(token).unlink()

    def join(
        self,
        limits: NodeLimits,
        node: TrainingNode,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> NodeWorld:
        """Let a node wait for a world and return the one that it is in; called by its first rank."""
        self.update(partial(rules.enter, node=node))
        enough_since: float | None = None
        next_log_at = clock() + _LOG_SECONDS
        while True:
            membership = self.read()
            if membership.world is None:
                since = clock() if enough_since is None else enough_since
                enough_since = since if len(membership.waiting) >= limits.minimum else None
                is_overdue = enough_since is not None and clock() - enough_since > GATHER_SECONDS
                step = partial(rules.form, limits=limits, is_overdue=is_overdue)
                if step(membership) is not membership:
                    membership = self.update(step)
            if (world := membership.world_of(node.token)) is not None:
                return world
            if membership.world is None and node not in (*membership.waiting, *membership.expected):
                membership = self.update(partial(rules.enter, node=node))  # it was taken for lost
            if clock() >= next_log_at:
                next_log_at = clock() + _LOG_SECONDS
                reason = f"{len(membership.waiting)} nodes wait, at least {limits.minimum} are needed"
                if membership.world is not None:
                    reason = f"world {membership.number} trains; this node joins at its next save"
                say(f"{self.root}: {reason}")
            sleep(_POLL_SECONDS)

    def follow(self, name: str, after: int) -> NodeWorld:
        """Return the first world after number ``after`` that has a node; called by its other ranks."""
        while True:
            world = self.read().world
            if world is not None and world.number > after and name in (node.name for node in world.nodes):
                return world
            time.sleep(_POLL_SECONDS)

    def _heartbeat_file(self, token: str) -> Path:
        return self._folder / f"heartbeat-{token}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Over NFS an exclusive lock needs a file that is open for writing (flock(2)).
        handle = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
