"""The newest checkpoint of a training on a disk of this machine, beside those that other machines see."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from spot_training.checkpointer import Checkpointer
from spot_training.errors import SaveError, one_line, say
from spot_training.levels.local import LocalFiles, local_folder, machine, make_private
from spot_training.retention.retention import CheckpointRetention
from spot_training.storage.hashing import hashed
from spot_training.storage.manifest import (
    Checkpoint,
    CheckpointManifest,
    File,
    OtherFormatError,
    name_of,
    parse,
    part_of,
)
from spot_training.storage.retry import FULL_ERRNOS
from spot_training.storage.store import Store

_CHUNK: Final = 1 << 24  # bytes between two calls of ``check``


def _copy_files(
    root: Path, manifest: CheckpointManifest, store: Store, stage: str, check: Callable[[], object]
) -> dict[str, File]:
    """Copy the files of all ranks from ``root`` to a stage; return them. ``check`` may raise to end that."""
    files: dict[str, File] = {}
    for part in map(part_of, range(manifest.world_size)):
        folder = store.part(stage, part)
        for path in manifest.files:
            if path.startswith(f"{part}/"):
                _copy_file(root / path, folder / path.removeprefix(f"{part}/"), check)
        files |= store.deliver(stage, part)
    return files


def _copy_file(source: Path, target: Path, check: Callable[[], object]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb", buffering=0) as reader, hashed(target) as writer:
        while chunk := reader.read(_CHUNK):
            check()
            writer.write(chunk)


class LocalLevel(Checkpointer):
    """Checkpoints below ``root``, in a directory for this training; for ``Checkpointer.restore(local)``.

    The newest one stays, the one that is being copied, and where it fits the restored one while the script
    has its ``Checkpoint``. The history is that of ``above``, whose storage other machines see. All ranks must
    be on this machine.
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
        self._retention = CheckpointRetention(self._store, 1, None, above._retention)

    @property
    def lineage(self) -> Sequence[str]:
        """See ``Checkpointer``."""
        return self._above.lineage

    def open(self) -> list[str]:
        """See ``Checkpointer``.

        Raises:
            SaveError: also if the ranks are on several machines, or the directory is another user's.
        """
        machines = set(self.ranks.gather(machine()))
        if len(machines) > 1:
            raise SaveError(f"{self.location}: the ranks must be on one machine, not on {len(machines)}")
        return super().open()

    def continuing(self, names: Sequence[str]) -> list[str]:
        """Return the names of this level without those of a history that was left; on all ranks.

        ``names``: of the level above. A process may have gone on from there on another machine. Unreadable
        ones are returned; none is if the newest one above is of another format.
        """

        def choose() -> str:
            newest: CheckpointManifest | None = None
            for name in names:
                try:
                    newest = parse(self._above._store.manifest(name))
                    break
                except OtherFormatError:
                    return "[]"
                except (ValueError, FileNotFoundError):
                    continue
            return json.dumps([name for name in local_names if self._continues(name, newest)])

        local_names = self.open()
        location = self._above.location
        chosen: list[str] = json.loads(self._together.on_first(lambda: self._call(location, choose)))
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
        try:
            while True:
                try:
                    return self._copy(name, check)
                except OSError as error:
                    is_full = error.errno in FULL_ERRNOS
                    if not is_full or not above._call(above.location, partial(above._drop_oldest, step)):
                        raise
        except (OSError, ValueError) as error:
            raise SaveError(f"{above.location}: {one_line(error)}") from None
        finally:
            self._retention.in_use = None

    def clear(self) -> None:
        """Remove the checkpoints of this history: a complete training needs none here. For rank 0."""
        for name in self._store.names():
            with contextlib.suppress(ValueError, OSError):
                if set(parse(self._store.manifest(name)).lineage[:1]) & set(self.lineage):
                    self._store.remove(name)

    def _open(self) -> str:
        make_private(Path(self.location))
        return super()._open()

    def _continues(self, name: str, above: CheckpointManifest | None) -> bool:
        """Return whether a checkpoint is of the same history as one above; also if it cannot be read."""
        try:
            return above is None or parse(self._store.manifest(name)).continues(above)
        except (ValueError, FileNotFoundError):
            return True

    def _copy(self, name: str, check: Callable[[], object]) -> int:
        above, manifest = self._above, parse(self._store.manifest(name))
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
        checkpoint = super()._load(name)
        if checkpoint is not None:
            self._retention.restored = weakref.ref(checkpoint)
        return checkpoint

    def _resume(self, manifest: CheckpointManifest) -> None:
        self._above._resume(manifest)
        self._space.expected = manifest.size

    def expect(self, size: int) -> None:
        """Record the bytes of the next checkpoint, if none was saved or restored here."""
        self._space.expected = self._space.expected or size

    def _stage(self, name: str) -> str:
        stage = super()._stage(name)
        count = 1 if self._store.names() else 2  # the next one is written beside this one
        if not self._space.fits(count):  # where it is memory, a full disk may end the training
            self._store.drop(stage)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.location)
        return stage
