"""One training in a folder: a lock, and a record of whose it is.

On a local disk and on NFS 4.1 (EFS) ``flock`` keeps a second process out; there it is a lock of the server,
which lets it go when the client's lease ends (flock(2), "NFS details"; RFC 8881, 8.3). So the successor of a
machine that died waits, and a machine that was cut off for longer may have lost a lock it believes in.
Therefore the record: who takes the lock writes its name, and each commit looks whether it is still there.
Where a file system has no locks the record alone decides: the later process wins, the earlier one finds out
before it commits.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
import uuid
from pathlib import Path
from typing import Final

from spot_training.errors import InUseError
from spot_training.storage.files import Files
from spot_training.storage.patience import Patience

LOCK: Final = ".lock"
OWNER: Final = ".owner"
_NO_LOCKS: Final = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_log = logging.getLogger("spot_training")


def new_owner() -> dict[str, object]:
    """Return a record of this process; ``token`` is like no other's."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "token": uuid.uuid4().hex,
    }


def described(owner: object) -> str:
    """Return an owner's record as people read it."""
    if not isinstance(owner, dict):
        return "an unknown process"
    return f"process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}"


class FolderLock:
    """The lock of one folder. It ends with the process; what a fork inherits of it must end, too."""

    def __init__(self, folder: Path, files: Files, patience: Patience) -> None:
        self._folder = folder
        self._files = files
        self._patience = patience
        self._handle: int | None = None
        self._owner: dict[str, object] | None = None

    def take(self) -> None:
        """Take it, waiting as long as ``patience``; once taken: look whether it is still ours."""
        if self._owner is None:
            self._acquire()
            self._owner = new_owner()
            self._files.replace(self._folder / OWNER, json.dumps(self._owner).encode() + b"\n")
        elif (found := self._read()) != self._owner:
            raise InUseError(
                f"{self._folder} has been taken over by {described(found)}; here nothing is saved any more"
            )

    def release(self) -> None:
        """Let it go before the process ends."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = self._owner = None

    def _read(self) -> object:
        try:
            found: object = json.loads(self._files.read(self._folder / OWNER))
        except (FileNotFoundError, ValueError):
            return None
        return found

    def _acquire(self) -> None:
        path = self._folder / LOCK
        self._files.touch("lock", path)
        # Over NFS an exclusive lock needs a file that is open for writing (flock(2)).
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        end, told = self._patience.clock() + self._patience.seconds, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = described(self._read())
                if self._patience.clock() > end:
                    os.close(handle)
                    raise InUseError(
                        f"{self._folder} is in use by {owner}; allowed: one training in a folder"
                    ) from None
                if not told:
                    seconds = self._patience.seconds
                    _log.warning("%s is in use by %s; waiting %.0f s for it", self._folder, owner, seconds)
                    told = True
                self._patience.sleep(1.0)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(handle)
                    raise
                _log.warning("%s: no locks there; of two trainings the later one wins", self._folder)
                break
            else:
                break
        self._handle = handle
