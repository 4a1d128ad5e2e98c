"""The nodes' document, heartbeats and the current world's lease, in a directory that all nodes see.

Every name is opened each time: NFS then asks the server (nfs(5), "Close-to-open cache consistency"). The
document is changed under a lock of one file; heartbeats need none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from spot_training.nodes.membership import Membership, from_document
from spot_training.storage.files import Files
from spot_training.storage.lock import VALID_LEASE

FOLDER: Final = ".nodes"
"""In the directory of checkpoints."""
_DOCUMENT: Final = "nodes.json"
_LOCK: Final = "lock"


class NodeRegistry:
    """Reads and changes the membership of one training; raises ``OSError`` if the directory fails."""

    def __init__(self, root: Path) -> None:
        """``root``: of the checkpoints; it is created."""
        self.root, self._folder, self._files = root, root / FOLDER, Files()
        self._folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> Membership:
        """Return the present membership; a new one if there is none yet."""
        try:
            return from_document(json.loads(self._files.read(self._folder / _DOCUMENT)))
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
