"""Checkpoints in a folder: a disk, the job's volume, or EFS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spot_training.errors import InUseError
from spot_training.storage.files import Files
from spot_training.storage.lock import OWNER, FolderLock
from spot_training.storage.manifest import FILE, File, step_of
from spot_training.storage.patience import Patience

_STAGE = ".new-"  # being written
_REPLACED = ".replaced-"  # in the way of one that is renamed into its place just now
_GONE = ".gone-"  # being removed
_BAD = ".bad-"  # damaged


class FolderStore:
    """A folder for each checkpoint, in ``folder``. What counts has a name without a dot and a manifest in it.

    A save writes in a dotted folder, flushes every file in it, and renames it: after a crash at any moment a
    name without a dot is whole. Rank 0 renames, so on EFS other machines may see the new name a little later
    (their directory caches, nfs(5)); they are told the name and do not look for it.
    """

    def __init__(self, folder: Path, files: Files, patience: Patience) -> None:
        self._folder = folder
        self._files = files
        self._lock = FolderLock(folder, files, patience)
        self._count = 0

    @property
    def where(self) -> str:
        """See ``Store``."""
        return str(self._folder)

    def own(self) -> None:
        """See ``Store``."""
        self._files.make(self._folder)
        self._lock.take()

    def release(self) -> None:
        """Let another training in before this process ends."""
        self._lock.release()

    def clean(self) -> None:
        """See ``Store``."""
        for name in self._files.names(self._folder):
            path = self._folder / name
            place = self._folder / name.removeprefix(_REPLACED)
            if name.startswith(_REPLACED) and not place.exists():
                self._files.rename(path, place)
            elif name.startswith((_STAGE, _REPLACED, _GONE, f"{OWNER}.")):
                self._files.remove(path)

    def names(self) -> list[str]:
        """See ``Store``."""
        found = [name for name in self._files.names(self._folder) if step_of(name) is not None]
        return sorted(found, reverse=True)

    def manifest(self, name: str) -> str:
        """See ``Store``."""
        return self._files.read(self._folder / name / FILE).decode(errors="replace")

    def stage(self, name: str) -> str:
        """See ``Store``; a stage is the path of a dotted folder that nobody had before."""
        self._count += 1
        path = self._folder / f"{_STAGE}{name}.{self._count}"
        try:
            self._files.make_new(path)
        except FileExistsError:
            raise InUseError(f"{path} is there already; allowed: one training in {self._folder}") from None
        return str(path)

    def part(self, stage: str, part: str) -> Path:
        """See ``Store``."""
        path = Path(stage) / part
        self._files.remove(path)
        self._files.make_new(path)
        return path

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        """See ``Store``."""
        root, found = Path(stage), {}
        for path in sorted((root / part).rglob("*"), reverse=True):  # what is in a folder before the folder
            self._files.sync(path)
            if path.is_file():
                found[path.relative_to(root).as_posix()] = File(*self._files.digest(path))
        self._files.sync(root / part)
        return found

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """See ``Store``. A checkpoint of the same step that is there goes away just before."""
        self.own()
        place = self._folder / name
        if not Path(stage).exists() and place.exists():  # tried again after the rename
            self._files.sync(self._folder)
            return
        self._files.write(Path(stage) / FILE, manifest.encode())
        self._files.sync(Path(stage))
        if name in self._files.names(self._folder):
            self._files.remove(self._folder / f"{_REPLACED}{name}")
            self._files.rename(place, self._folder / f"{_REPLACED}{name}")
        self._files.rename(Path(stage), place)
        self._files.sync(self._folder)
        for old in self._files.names(self._folder):
            if old.startswith((_REPLACED, _BAD)):  # a whole one is newer than what it was kept for
                self._files.remove(self._folder / old)

    def drop(self, stage: str) -> None:
        """See ``Store``."""
        self._files.remove(Path(stage))

    def fetch(self, name: str) -> Path:
        """See ``Store``."""
        return self._folder / name

    def remove(self, name: str) -> None:
        """See ``Store``: renamed first, so that nothing half removed has a checkpoint's name."""
        gone = self._folder / f"{_GONE}{name}"
        self._files.remove(gone)
        self._files.rename(self._folder / name, gone)
        self._files.remove(gone)

    def set_aside(self, name: str) -> None:
        """See ``Store``."""
        bad = self._folder / f"{_BAD}{name}"
        self._files.remove(bad)
        self._files.rename(self._folder / name, bad)
