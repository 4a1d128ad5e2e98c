"""Mutual exclusion of trainings in a directory: a lock and an owner record.

``flock`` excludes a second process, on NFS 4.1 (EFS) until the client's lease expires (flock(2), "NFS
details"; RFC 8881, 8.3): a machine with a longer network failure may have lost the lock without noticing.
So the holder writes an owner record, and each commit checks it; without locks the record alone decides: the
later process wins. A pod on Kubernetes and a world of nodes have a lease instead: see `check_lease`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spot_training.errors import InUseError, log
from spot_training.storage.calls import RetryPolicy, record_progress
from spot_training.storage.files import Files

LOCK: Final = ".lock"
OWNER: Final = ".owner"
LEASE_VARIABLE: Final = "GPU_SPOT_LEASE"
"""File of a pod's lease: its name is the fencing token; while the lease holds its first word is ``held``."""
WORLD_VARIABLE: Final = "SPOT_TRAINING_WORLD"
"""File of the lease of this process's world of nodes (`spot_training.nodes`), like `LEASE_VARIABLE`."""
VALID_LEASE: Final = "held"
_NO_LOCKS: Final = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_POLL_SECONDS: Final = 0.5
_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _release_in_child() -> None:
    """Close a forked process's copies of the locks: a data loader's worker may outlive the training."""
    for lock in list(_locks):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)


def new_owner() -> dict[str, object]:
    """Return an owner record of this process; ``token`` is unique."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "token": uuid.uuid4().hex,
        **({"world": world} if (world := os.environ.get(WORLD_VARIABLE)) else {}),
    }


def describe_owner(owner: object) -> str:
    """Return an owner record as text."""
    if not isinstance(owner, dict):
        return "an unknown process"
    return f"process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}"


def check_owner(location: object, owner: object, read: Callable[[], str | bytes]) -> None:
    """Raise ``InUseError`` if the record that ``read`` returns is of another owner."""
    if (now := read_owner(read)) != owner:
        raise InUseError(
            f"{location} was taken over by {describe_owner(now)}; this process can no longer save"
        )


def read_owner(read: Callable[[], str | bytes]) -> object:
    """Return the owner record that ``read`` returns; None if there is none, or it is damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return json.loads(read())
    return None


def check_lease() -> None:
    """Check that this process's leases, if it has any, were not superseded by one with a higher token.

    The file is opened each time: NFS then asks the server (nfs(5), "Close-to-open cache consistency").

    Raises:
        InUseError: another pod has the lease, the world is over, or the file does not exist.
        OSError: the file cannot be read.
    """
    for variable in (LEASE_VARIABLE, WORLD_VARIABLE):
        if not (path := os.environ.get(variable)):
            continue
        try:
            text = Path(path).read_text("utf-8").strip()
        except FileNotFoundError:
            text = "not there"
        if not text.startswith(VALID_LEASE):
            raise InUseError(
                f"lease {path} must be {VALID_LEASE}, but is {text}; this process can no longer save"
            )


def _is_of_an_earlier_world(owner: object) -> bool:
    """Return whether the owner is of an earlier world of this training: it can commit nothing any more."""
    world = os.environ.get(WORLD_VARIABLE)
    before = owner.get("world") if isinstance(owner, dict) else None
    if not world or not before or world == before:
        return False
    return Path(world).parent == Path(str(before)).parent


class FolderLock:
    """The lock of one directory; it ends with the process: a forked process closes what it inherits."""

    _handle: int | None = None

    def __init__(self, folder: Path, files: Files, retry_policy: RetryPolicy) -> None:
        self._folder, self._files, self._retry_policy = folder, files, retry_policy
        self._owner: dict[str, object] | None = None
        _locks.add(self)

    def take(self) -> None:
        """Acquire the lock, waiting up to the retry policy's time; if held, check the owner record."""
        if self._owner is None:
            owner = new_owner()
            self._acquire()
            try:
                self._files.replace(self._folder / OWNER, json.dumps(owner).encode() + b"\n")
            except BaseException:
                self.release()  # a retry acquires it again
                raise
            self._owner = owner
        else:
            check_owner(self._folder, self._owner, self._read)

    def release(self) -> None:
        """Release the lock before the process ends."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = self._owner = None

    def __del__(self) -> None:
        self.release()

    def is_on(self, handle: int) -> bool:
        """Return whether this lock is acquired and on the same file as an open one."""
        return self._handle is not None and os.path.sameopenfile(self._handle, handle)

    def _read(self) -> bytes:
        return self._files.read(self._folder / OWNER)

    def _acquire(self) -> None:
        path = self._folder / LOCK
        self._files.touch("lock", path)
        # Over NFS an exclusive lock needs a file that is open for writing (flock(2)).
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        end, has_logged = self._retry_policy.clock() + self._retry_policy.seconds, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = describe_owner(record := read_owner(self._read))
                if any(lock.is_on(handle) for lock in list(_locks)):
                    os.close(handle)
                    raise InUseError(
                        f"{self._folder} is in use by another training of this process; end or close() that "
                        "one first, or give each a name, such as name='fold-1'"
                    ) from None
                if _is_of_an_earlier_world(record):
                    log.warning("%s is locked by %s, whose world is over", self._folder, owner)
                    break
                if self._retry_policy.clock() > end:
                    os.close(handle)
                    raise InUseError(
                        f"{self._folder} is in use by {owner}; use another directory for a second training"
                    ) from None
                if not has_logged:
                    seconds = self._retry_policy.seconds
                    log.warning("%s is in use by %s; waiting up to %.0f s", self._folder, owner, seconds)
                    has_logged = True
                record_progress()  # waiting for another process, not for the storage
                self._retry_policy.sleep(_POLL_SECONDS)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(handle)
                    raise
                log.warning(
                    "%s: file system without locks; of two trainings the later one wins", self._folder
                )
                break
            else:
                break
        self._handle = handle
