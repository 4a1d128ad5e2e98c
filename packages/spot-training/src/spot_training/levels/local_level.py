"""The newest checkpoint of a training on a disk of this machine, beside those that other machines see."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import socket
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from spot_training.checkpointer import Checkpointer
from spot_training.errors import SaveError, one_line, say
from spot_training.storage import manifest as manifests
from spot_training.storage.calls import FULL_ERRNOS
from spot_training.storage.files import Files, hashed
from spot_training.storage.manifest import Checkpoint, CheckpointManifest, File, name_of, part_of
from spot_training.storage.store import Store

LOCAL_VARIABLE: Final = "GPU_SPOT_LOCAL_CHECKPOINTS"
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_FILES: Final = re.compile(r"^(?:in)?active_file (\d+)$", re.MULTILINE)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CGROUP: Final = Path("/sys/fs/cgroup")
_CHUNK: Final = 1 << 24  # bytes between two calls of ``check``


def local_folder(root: str | os.PathLike[str], location: str) -> Path:
    """Return the directory below ``root`` for the checkpoints of ``location``: each training has its own."""
    return Path(root) / f"{Path(location).name}-{hashlib.sha256(location.encode()).hexdigest()[:8]}"


def make_private(folder: Path) -> None:
    """Create the directory for this user only; ``SaveError``: another user has it, as in ``/dev/shm``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner, user = folder.stat().st_uid, os.geteuid()
    if owner != user:
        raise SaveError(f"{folder} belongs to user {owner}, not to {user}; use a folder of this user")


def machine() -> str:
    """Return what is the same in all processes that see the same local directory: boot and host name."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return f"{boot} {socket.gethostname()}"


class LocalFiles(Files):
    """Files of a local directory; one in memory (tmpfs) has no more space than memory is available."""

    def free_bytes(self, folder: Path) -> int | None:
        """See ``Files``."""
        free = super().free_bytes(folder)
        if free is None or not _is_in_memory(folder):
            return free
        return min([free, *available_memory()])


def available_memory(
    memory_information: Path = Path("/proc/meminfo"), control_group: Path = _CGROUP
) -> list[int]:
    """Return the bytes that the machine and this control group still have; empty if neither is known.

    What the group holds of files on disks counts as free: the kernel drops it. Source: proc_meminfo(5),
    ``MemAvailable``; kernel, "Control Group v2", memory.
    """
    result = []
    with contextlib.suppress(OSError):
        if match := _AVAILABLE.search(memory_information.read_text()):
            result.append(int(match[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # no such group; "max": no limit
        limit = int((control_group / "memory.max").read_text())
        used = int((control_group / "memory.current").read_text())
        files = _FILES.findall((control_group / "memory.stat").read_text())
        result.append(max(0, limit - used + sum(map(int, files))))
    return result


def _is_in_memory(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a directory is on a tmpfs, by the longest mount point above it (proc_mounts(5))."""
    path = folder.resolve()
    kinds = {}
    try:
        for line in mounts.read_text().splitlines():
            _, point, kind, *_ = line.split(" ")
            if path.is_relative_to(point):
                kinds[len(point)] = kind
    except (OSError, ValueError):
        return True  # unknown: the smaller figure counts
    return not kinds or kinds[max(kinds)] == "tmpfs"


def _copy_files(
    root: Path, manifest: CheckpointManifest, store: Store, stage: str, check: Callable[[], object]
) -> dict[str, File]:
    """Copy the files of all ranks from ``root`` to a stage; return them. ``check`` may raise to end that."""
    files: dict[str, File] = {}
    for part in map(part_of, range(manifest.world_size)):
        folder = store.part(stage, part)
        for path in (path for path in manifest.files if path.startswith(f"{part}/")):
            target = folder / path.removeprefix(f"{part}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with (root / path).open("rb", buffering=0) as reader, hashed(target, check) as writer:
                shutil.copyfileobj(reader, writer, _CHUNK)
        files |= store.deliver(stage, part)
    return files


class LocalLevel(Checkpointer):
    """Checkpoints below ``root``, in a directory for this training; for ``Checkpointer.restore(local)``.

    The newest one stays, the one that is being copied, and where it fits the restored one while the script
    has its ``Checkpoint``. The history is that of ``above``. All ranks must be on this machine.
    """

    _skips_unreadable = True  # another storage has the training

    def __init__(self, root: str | os.PathLike[str], above: Checkpointer) -> None:
        self._above = above
        super().__init__(
            local_folder(root, above.location),
            keep=1,
            ranks=above.ranks,
            fingerprint=above._fingerprint,
            reshard=above._reshard,
            run=above._run,
            files=LocalFiles(),
            retry_policy=above._retry_policy,
        )
        self._retention.above = above._retention

    @property
    def lineage(self) -> Sequence[str]:
        """See ``Checkpointer``."""
        return self._above.lineage

    def open(self) -> list[str]:
        """See ``Checkpointer``; raises ``SaveError`` also for several machines, or another user's folder."""
        if (count := len(set(self.ranks.gather(machine())))) > 1:
            raise SaveError(f"{self.location}: the ranks must be on one machine, not on {count}")
        return super().open()

    def continuing(self, names: Sequence[str]) -> list[str]:
        """Return the names of this level without those of a history that was left; on all ranks.

        ``names``: of the level above. A process may have gone on from there on another machine. Unreadable
        ones are returned; none is if the newest one above is of another format.
        """

        def choose() -> list[str]:
            for name in names:
                try:
                    newest = manifests.parse(self._above._store.manifest(name))
                    return [name for name in local_names if self._continues(name, newest)]
                except manifests.OtherFormatError:
                    return []
                except (ValueError, FileNotFoundError):
                    continue
            return local_names

        local_names = self.open()
        location = self._above.location
        chosen = self._together.on_first(lambda: self._call(location, choose))
        skipped = [name for name in local_names if name not in chosen and name > max(names, default="")]
        if skipped and self.ranks.rank == 0:
            say(f"{self.location}: {', '.join(skipped)} not used: another process went on from {location}")
        return chosen

    def copy_up(self, step: int, check: Callable[[], object] = lambda: None) -> int:
        """Commit a checkpoint of this level above, as it is; return its bytes. Rank 0 calls it, alone.

        ``check`` may raise ``SaveError`` to end that early.

        Raises:
            SaveError: it was not committed; earlier checkpoints are unchanged.
            InUseError: another process uses the level above.
        """
        name, above = name_of(step), self._above
        self._retention.in_use = name
        drop = partial(above._call, above.location, partial(above._retention.drop_last, name))
        try:
            while True:
                try:
                    return self._copy(name, check)
                except OSError as error:
                    if error.errno not in FULL_ERRNOS or not drop():
                        raise
        except (OSError, ValueError) as error:
            raise SaveError(f"{above.location}: {one_line(error)}") from None
        finally:
            self._retention.in_use = None

    def clear(self) -> None:
        """Remove the checkpoints of this history: a complete training needs none here. For rank 0."""
        for name in self._store.names():
            with contextlib.suppress(ValueError, OSError):
                if set(manifests.parse(self._store.manifest(name)).lineage[:1]) & set(self.lineage):
                    self._store.remove(name)

    def _open(self) -> list[str]:
        make_private(Path(self.location))
        return super()._open()

    def _continues(self, name: str, above: CheckpointManifest) -> bool:
        """Return whether a checkpoint is of the same history as one above; also if it cannot be read."""
        try:
            return manifests.parse(self._store.manifest(name)).continues(above)
        except (ValueError, FileNotFoundError):
            return True

    def _copy(self, name: str, check: Callable[[], object]) -> int:
        above, manifest = self._above, manifests.parse(self._store.manifest(name))
        root, stage = self._store.fetch(name), above._call(above.location, lambda: above._stage(name))
        try:
            files = above._call(
                f"{above.location}: copy", lambda: _copy_files(root, manifest, above._store, stage, check)
            )
            if files != manifest.files:
                raise SaveError(f"{root} is damaged: its files are not those that were saved")
            above._commit(stage, name, manifest, None)
        except Exception:
            with contextlib.suppress(OSError):
                above._calls.call(above.location, lambda: above._store.drop(stage))
            raise
        above.last_step = manifest.step
        return manifest.size

    def _load(self, name: str) -> Checkpoint | None:
        if (checkpoint := super()._load(name)) is not None:
            self._retention.restored = weakref.ref(checkpoint)
        return checkpoint

    def _resume(self, manifest: CheckpointManifest) -> None:
        self._above._resume(manifest)
        self._retention.expected = manifest.size

    def expect(self, size: int) -> None:
        """Record the bytes of the next checkpoint, if none was saved or restored here."""
        self._retention.expected = self._retention.expected or size

    def _stage(self, name: str) -> str:
        stage = super()._stage(name)
        count = 1 if self._store.names() else 2  # the next one is written beside this one
        if not self._retention.fits(count):  # where it is memory, a full disk may end the training
            self._store.drop(stage)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.location)
        return stage
