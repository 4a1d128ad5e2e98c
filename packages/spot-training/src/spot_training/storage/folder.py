"""Checkpoints in a directory: on a local disk, the job's volume, or EFS; and the store of any location."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spot_training.errors import InUseError, SpotTrainingError
from spot_training.storage.calls import RetryPolicy
from spot_training.storage.files import Files
from spot_training.storage.lock import OWNER, WORLD_VARIABLE, FolderLock
from spot_training.storage.manifest import FILE, File, step_of
from spot_training.storage.store import Store

_STAGING = ".new-"  # being written
_REPLACED = ".replaced-"  # replaced by the checkpoint that is renamed to its name
_REMOVING = ".gone-"  # being removed
_DAMAGED = ".bad-"  # damaged
_OTHER_RUN = ".run-"  # another run's, set aside


class FolderStore:
    """One directory per checkpoint in ``folder``; committed ones have no leading dot and a manifest.

    A save writes to a hidden directory, flushes every file and renames it. Invariant: after a crash at any
    point a directory without a leading dot is complete. Rank 0 renames; on EFS other machines may see the new
    name later (directory caches, nfs(5)), so they get the name from rank 0 and do not list the directory.
    """

    def __init__(self, folder: Path, files: Files, retry_policy: RetryPolicy) -> None:
        self._folder, self._files, self._count = folder, files, 0
        self._lock = FolderLock(folder, files, retry_policy)

    @property
    def location(self) -> str:
        return str(self._folder)

    def acquire(self) -> None:
        self._files.make(self._folder)
        self._lock.take()

    replaces = True

    def release(self) -> None:
        self._lock.release()

    def clean(self) -> None:
        for name in self._files.names(self._folder):
            path = self._folder / name
            target = self._folder / name.removeprefix(_REPLACED)
            if name.startswith(_REPLACED) and not target.exists():
                self._files.rename(path, target)
            elif name.startswith((_STAGING, _REPLACED, _REMOVING, f"{OWNER}.")):
                self._files.remove(path)

    def names(self) -> list[str]:
        names = [name for name in self._files.names(self._folder) if step_of(name) is not None]
        return sorted(names, reverse=True)

    def manifest(self, name: str) -> str:
        return self._files.read(self._folder / name / FILE).decode(errors="replace")

    def stage(self, name: str) -> str:
        """See ``Store``; a stage is the path of a new hidden directory."""
        self._count += 1
        world = Path(os.environ.get(WORLD_VARIABLE, "")).name  # a frozen node of another may still write
        path = self._folder / f"{_STAGING}{name}.{self._count}{world and f'.{world}'}"
        try:
            self._files.make(path, is_new=True)
        except FileExistsError:
            raise InUseError(f"{path} exists already; use one training in {self._folder}") from None
        return str(path)

    def part(self, stage: str, part: str) -> Path:
        path = Path(stage) / part
        self._files.remove(path)
        self._files.make(path, is_new=True)
        return path

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        root, files = Path(stage), {}
        for path in sorted((root / part).rglob("*"), reverse=True):  # files before their directory
            self._files.sync(path)
            if path.is_file():
                files[path.relative_to(root).as_posix()] = File(*self._files.written_digest(path))
        self._files.sync(root / part)
        return files

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """See ``Store``. An existing checkpoint of the same step is replaced."""
        self.acquire()
        target = self._folder / name
        if not Path(stage).exists() and target.exists():  # retried after the rename
            self._files.sync(self._folder)
            return
        self._files.write(Path(stage) / FILE, manifest.encode())
        self._files.sync(Path(stage))
        if name in self._files.names(self._folder):
            self._move(name, _REPLACED)
        self._files.rename(Path(stage), target)
        self._files.sync(self._folder)
        for old in self._files.names(self._folder):
            if old.startswith(_REPLACED):
                self._files.remove(self._folder / old)

    def amend(self, name: str, manifest: str) -> None:
        self._files.replace(self._folder / name / FILE, manifest.encode())

    def drop(self, stage: str) -> None:
        self._files.remove(Path(stage))

    def free_bytes(self) -> int | None:
        return self._files.free_bytes(self._folder)

    def drop_damaged(self) -> bool:
        for name in (names := self.damaged()):
            self._files.remove(self._folder / f"{_DAMAGED}{name}")
        return bool(names)

    def fetch(self, name: str) -> Path:
        return self._folder / name

    def remove(self, name: str) -> None:
        """See ``Store``: renamed first, so that a partly removed directory has no checkpoint name."""
        self._files.remove(self._move(name, _REMOVING))

    def quarantine(self, name: str) -> None:
        self._move(name, _DAMAGED)

    def _move(self, name: str, prefix: str) -> Path:
        target = self._folder / f"{prefix}{name}"
        self._files.remove(target)
        self._files.rename(self._folder / name, target)
        return target

    def damaged(self) -> list[str]:
        names = self._files.names(self._folder)
        return [name.removeprefix(_DAMAGED) for name in names if name.startswith(_DAMAGED)]

    def exclude(self, name: str, label: str) -> None:
        target, count = self._folder / f"{_OTHER_RUN}{label}-{name}", 1
        while target.exists():
            target, count = self._folder / f"{_OTHER_RUN}{label}-{name}.{count}", count + 1
        self._files.rename(self._folder / name, target)
        self._files.sync(self._folder)


def store_of(
    location: str | os.PathLike[str], files: Files | None = None, retry_policy: RetryPolicy | None = None
) -> Store:
    """Return the store of a directory or of ``s3://bucket/prefix``; another URL is an error."""
    if str(location).startswith("s3://"):
        from spot_training.storage.s3 import S3Store  # needs boto3, which most environments lack

        return S3Store(str(location))
    if "://" in str(location):
        raise SpotTrainingError(f"location must be a directory or s3://bucket/prefix, not {location}")
    return FolderStore(Path(location).resolve(), files or Files(), retry_policy or RetryPolicy())
