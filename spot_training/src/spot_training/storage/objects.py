"""Checkpoints in an object store, which has no directories, no renames and no locks.

Files are uploaded first, the manifest last: without a manifest there is no checkpoint. The manifest is
written only if it does not exist.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from spot_training.errors import InUseError, SpotTrainingError
from spot_training.storage.files import Files
from spot_training.storage.lock import OWNER, describe_owner, new_owner
from spot_training.storage.manifest import FILE, File, step_of

_DAMAGED: Final = f"{FILE}.damaged"


class Objects(Protocol):
    """The objects below a URL, by key. Raises ``OSError``; ``FileNotFoundError`` for a missing object."""

    @property
    def location(self) -> str:
        """The URL, without a slash at its end."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with ``prefix``."""
        ...

    def get(self, key: str) -> str:
        """Return an object's text."""
        ...

    def put(self, key: str, text: str, *, is_new: bool) -> None:
        """Write an object; with ``is_new`` raise ``FileExistsError`` if it exists."""
        ...

    def upload(self, path: Path, key: str) -> None:
        """Write a file's content."""
        ...

    def download(self, key: str, path: Path) -> None:
        """Write an object's content to a file."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is not an error."""
        ...


class ObjectStore:
    """Checkpoints in ``objects``: of two trainings the later one wins, and the earlier one cannot commit."""

    def __init__(self, objects: Objects, scratch: Path | None = None) -> None:
        """``scratch``: local directory for transfers, default temporary."""
        self._objects = objects
        self._scratch = Path(tempfile.mkdtemp(prefix="spot-training-", dir=scratch))
        self._files = Files()
        self._owner: dict[str, object] | None = None
        self._fetched = ""

    @property
    def location(self) -> str:
        """See ``Store``."""
        return self._objects.location

    def acquire(self) -> None:
        """See ``Store``."""
        if self._owner is None:
            self._owner = new_owner()
            self._objects.put(OWNER, json.dumps(self._owner), is_new=False)
        elif (owner := self._read_owner()) != self._owner:
            raise InUseError(
                f"{self.location} was taken over by {describe_owner(owner)}; this process can no longer save"
            )

    def clean(self) -> None:
        """See ``Store``; files without a manifest are overwritten by the next save of their step."""

    def names(self) -> list[str]:
        """See ``Store``."""
        return self._names_with(FILE)

    def manifest(self, name: str) -> str:
        """See ``Store``."""
        return self._objects.get(f"{name}/{FILE}")

    def stage(self, name: str) -> str:
        """See ``Store``; a stage is the checkpoint's name."""
        return name

    def part(self, stage: str, part: str) -> Path:
        """See ``Store``."""
        path = self._scratch / "out" / part
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        """See ``Store``."""
        root, files = self._scratch / "out", {}
        for path in sorted((root / part).rglob("*")):
            if path.is_file():
                key = path.relative_to(root).as_posix()
                files[key] = File(*self._files.written_digest(path))
                self._objects.upload(path, f"{stage}/{key}")
        shutil.rmtree(root / part)
        return files

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """See ``Store``."""
        self.acquire()
        self._fetched = ""
        try:
            self._objects.put(f"{name}/{FILE}", manifest, is_new=True)
        except FileExistsError:
            if self.manifest(name) != manifest:  # else a retry of a request that had succeeded
                raise InUseError(
                    f"{self.location}/{name} exists already; allowed: one training in {self.location}"
                ) from None

    def amend(self, name: str, manifest: str) -> None:
        """See ``Store``."""
        self._objects.put(f"{name}/{FILE}", manifest, is_new=False)

    def drop(self, stage: str) -> None:
        """See ``Store``; uploaded files stay without a manifest."""
        shutil.rmtree(self._scratch / "out", ignore_errors=True)

    def free_bytes(self) -> int | None:
        """See ``Store``; an object store has no limit."""
        return None

    def drop_damaged(self) -> bool:
        """See ``Store``; an object store is not full, and their files stay."""
        return False

    def fetch(self, name: str) -> Path:
        """See ``Store``: downloaded once."""
        root = self._scratch / "in" / name
        if name == self._fetched:
            return root
        shutil.rmtree(root.parent, ignore_errors=True)
        for key in self._objects.keys(f"{name}/"):
            path = root / key.removeprefix(f"{name}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._objects.download(key, path)
        self._fetched = name
        return root

    def remove(self, name: str) -> None:
        """See ``Store``; the manifest is deleted first."""
        self._objects.delete(f"{name}/{FILE}")
        for key in self._objects.keys(f"{name}/"):
            self._objects.delete(key)

    def quarantine(self, name: str) -> None:
        """See ``Store``; renames its manifest."""
        with contextlib.suppress(FileNotFoundError):
            text = self._objects.get(f"{name}/{FILE}")
            self._objects.put(f"{name}/{_DAMAGED}", text, is_new=False)
        self._objects.delete(f"{name}/{FILE}")

    def damaged(self) -> list[str]:
        """See ``Store``."""
        committed = self.names()
        return [name for name in self._names_with(_DAMAGED) if name not in committed]

    def exclude(self, name: str, label: str) -> None:
        """See ``Store``; an object store renames nothing, and a save of the same step would overwrite it."""
        raise SpotTrainingError(
            f"{self.location}/{name} cannot be set aside in an object store: use another location"
        )

    replaces = False

    def release(self) -> None:
        """See ``Store``."""
        self._owner = None

    def _names_with(self, file: str) -> list[str]:
        """Return the names of the checkpoints that have a file, newest step first."""
        keys = (key.split("/") for key in self._objects.keys(""))
        names = [key[0] for key in keys if step_of(key[0]) is not None and key[1:] == [file]]
        return sorted(names, reverse=True)

    def _read_owner(self) -> object:
        try:
            owner: object = json.loads(self._objects.get(OWNER))
        except (FileNotFoundError, ValueError):
            return None
        return owner
