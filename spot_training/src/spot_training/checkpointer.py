"""Checkpoints that are whole or not there: written, committed, found again."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from spot_training.errors import (
    InUseError,
    MismatchError,
    RestoreError,
    SaveError,
    SpotTrainingError,
    one_line,
)
from spot_training.ranks import ALONE, Ranks
from spot_training.storage.files import Files
from spot_training.storage.folder import FolderStore
from spot_training.storage.manifest import File, Manifest, name_of, parse, part_of
from spot_training.storage.patience import Patience
from spot_training.storage.store import Store

FOLDER_VARIABLE: Final = "GPU_SPOT_CHECKPOINTS"
Write: TypeAlias = Callable[[Path], object]
_KINDS: Final[Mapping[str, type[SpotTrainingError]]] = {
    one.__name__: one for one in (InUseError, MismatchError, RestoreError, SaveError, SpotTrainingError)
}
_log = logging.getLogger("spot_training")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is whole."""

    step: int
    path: Path
    """Its folder, to read only; each rank's files are in ``part(rank)``."""
    meta: Mapping[str, Any]
    """What rank 0 gave to ``save``."""
    world_size: int
    """How many ranks wrote it."""

    def part(self, rank: int = 0) -> Path:
        """Return the folder that a rank wrote."""
        return self.path / part_of(rank)


def store_of(place: str | os.PathLike[str], files: Files, patience: Patience) -> Store:
    """Return the store of a folder, or of ``s3://bucket/prefix``."""
    if str(place).startswith("s3://"):
        from spot_training.storage.s3 import S3Store  # needs boto3, which most environments lack

        return S3Store(str(place))
    return FolderStore(Path(place), files, patience)


class Checkpointer:
    """Keeps the newest ``keep`` checkpoints of one training in a folder or in S3.

    All ranks of ``ranks`` call ``restore`` and ``save`` at the same steps; each writes files of its own, and
    rank 0 commits after all are done. ``fingerprint`` says what can load them, such as the model's shapes:
    another one is refused. With ``reshard`` another number of ranks may load them.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        keep: int = 3,
        ranks: Ranks = ALONE,
        fingerprint: str = "",
        reshard: bool = False,
        files: Files | None = None,
        patience: Patience | None = None,
        store: Store | None = None,
    ) -> None:
        """``place``: by default ``$GPU_SPOT_CHECKPOINTS``, else ``checkpoints`` in the working directory."""
        if keep < 1:
            raise SpotTrainingError(f"keep is {keep}, allowed: 1 or more (2 or more outlive a damaged one)")
        place = place or os.environ.get(FOLDER_VARIABLE) or "checkpoints"
        self._patience = patience or Patience()
        self._files = files or Files()
        self._store = store or store_of(place, self._files, self._patience)
        self._keep = keep
        self._ranks = ranks
        self._fingerprint = fingerprint
        self._reshard = reshard
        self._last_step: int | None = None
        self._is_open = False

    @property
    def where(self) -> str:
        """How people call the place."""
        return self._store.where

    @property
    def last_step(self) -> int | None:
        """The step that this process has saved or restored last."""
        return self._last_step

    def restore(self) -> Saved | None:
        """Return the newest checkpoint that is whole, the same at each rank; None where there is none yet.

        Damaged ones are named and passed over. ``RestoreError`` where there are only damaged ones: to begin
        anew would be silent loss. ``MismatchError`` for another model or world, ``InUseError`` for a folder
        in which another process trains, ``SaveError`` for one that cannot be written: such a training need
        not begin.
        """
        names = json.loads(self._first(lambda: self._patience.call(self.where, self._open)))
        for name in names:
            found = self._look(name)
            if found is not None:
                self._last_step = found.step
                _log.info("%s: goes on at step %d", self.where, found.step)
                return found
        if names:
            raise RestoreError(
                f"{self.where}: none of {', '.join(names)} can be used; to begin at step 0 move them away"
            )
        return None

    def save(self, step: int, write: Write, meta: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint; on return it is safe on disk at every rank, and the oldest ones are gone.

        ``write`` puts this rank's files into the empty folder that it is given; it is called again after a
        transient error. ``meta`` is rank 0's, JSON. The step that was saved or restored last is not written
        again. ``SaveError``, at every rank: nothing new counts, what was saved before stays.
        """
        if self._last_step == step:
            return
        name = name_of(step)
        stage = self._first(lambda: self._patience.call(self.where, lambda: self._stage(name)))
        try:
            files = self._write(stage, write)
            manifest = Manifest(step, self._ranks.size, self._fingerprint, dict(meta or {}), files)
            self._first(lambda: self._commit(stage, name, manifest))
        except Exception:
            if self._ranks.rank == 0:
                with contextlib.suppress(OSError):
                    self._store.drop(stage)
            raise
        self._last_step = step

    def _open(self) -> str:
        self._store.own()
        self._store.clean()
        self._is_open = True
        return json.dumps(self._store.names())

    def _stage(self, name: str) -> str:
        if not self._is_open:  # a training that never restores
            self._open()
        self._store.own()
        return self._store.stage(name)

    def _write(self, stage: str, write: Write) -> dict[str, File]:
        """Let each rank write its part; return all files."""
        part = part_of(self._ranks.rank)

        def attempt() -> str:
            write(self._store.part(stage, part))
            return json.dumps({path: asdict(one) for path, one in self._store.deliver(stage, part).items()})

        told = self._gather(lambda: self._patience.call(f"{self.where}: save", attempt))
        return {path: File(**one) for text in told for path, one in json.loads(text).items()}

    def _commit(self, stage: str, name: str, manifest: Manifest) -> str:
        text = manifest.to_text()
        self._patience.call(self.where, lambda: self._store.commit(stage, name, text))
        try:
            # What is newer was passed over, and is none of those that this training can count on.
            ours = [one for one in self._store.names() if one <= name]
            for old in ours[self._keep :]:
                self._store.remove(old)
        except OSError as error:
            _log.warning("%s: an old checkpoint stays: %s", self.where, one_line(error))
        return ""

    def _look(self, name: str) -> Saved | None:
        """Return a checkpoint when each rank finds its parts whole; else say why not, and pass over it."""
        told = json.loads(self._first(lambda: json.dumps(self._manifest(name))))
        manifest, reason, is_damaged = None, told["reason"], told["damaged"]
        if not reason:
            manifest = parse(told["manifest"])
            self._check(name, manifest)
            found = [json.loads(one) for one in self._ranks.gather(json.dumps(self._verify(name, manifest)))]
            reason = next((one["reason"] for one in found if one["reason"]), "")
            is_damaged = any(one["damaged"] for one in found)
        if manifest is not None and not reason:
            return Saved(manifest.step, self._store.fetch(name), manifest.meta, manifest.world_size)
        if self._ranks.rank == 0:
            _log.warning("%s/%s is passed over: %s", self.where, name, reason)
            if is_damaged:
                with contextlib.suppress(OSError):
                    self._store.set_aside(name)
        return None

    def _manifest(self, name: str) -> dict[str, Any]:
        """Return the text of a manifest, or why it cannot be used and whether it is damaged for good."""
        try:
            text = self._patience.call(self.where, lambda: self._store.manifest(name))
            parse(text)
        except (ValueError, FileNotFoundError) as error:
            missing = isinstance(error, FileNotFoundError)
            return {"reason": "it has no manifest" if missing else one_line(error), "damaged": True}
        except OSError as error:
            return {"reason": one_line(error), "damaged": False}
        return {"manifest": text, "reason": "", "damaged": False}

    def _verify(self, name: str, manifest: Manifest) -> dict[str, Any]:
        """Compare this rank's share of the files with the manifest."""
        mine = {part_of(rank) for rank in range(self._ranks.rank, manifest.world_size, self._ranks.size)}
        try:
            root = self._patience.call(self.where, lambda: self._store.fetch(name))
            for path, wanted in manifest.files.items():
                if path.split("/")[0] not in mine:
                    continue
                size, digest = self._patience.call(self.where, partial(self._files.digest, root / path))
                if size != wanted.size:
                    return {"reason": f"{path} has {size} bytes of {wanted.size}", "damaged": True}
                if digest != wanted.sha256:
                    return {"reason": f"{path} has another checksum", "damaged": True}
        except FileNotFoundError as error:
            return {"reason": f"{Path(str(error.filename)).name} is missing", "damaged": True}
        except OSError as error:
            return {"reason": one_line(error), "damaged": False}
        return {"reason": "", "damaged": False}

    def _check(self, name: str, manifest: Manifest) -> None:
        if manifest.fingerprint != self._fingerprint:
            raise MismatchError(
                f"{self.where}/{name} is of another model: {manifest.fingerprint or 'no fingerprint'}, "
                f"this one: {self._fingerprint or 'no fingerprint'}"
            )
        if manifest.world_size != self._ranks.size and not self._reshard:
            raise MismatchError(
                f"{self.where}/{name} was saved by {manifest.world_size} processes, "
                f"these are {self._ranks.size}; allowed: as many"
            )

    def _first(self, action: Callable[[], str]) -> str:
        """Let rank 0 do something, and return at every rank what it returned, or raise what it raised."""
        return self._gather(action if self._ranks.rank == 0 else str)[0]

    def _gather(self, action: Callable[[], str]) -> list[str]:
        """Let all ranks do something; return what they returned. If one fails all of them raise."""
        mine: Exception | None = None
        try:
            told = {"value": action()}
        except Exception as error:
            mine = error
            kind = type(error).__name__ if isinstance(error, SpotTrainingError) else SaveError.__name__
            told = {"kind": kind, "error": one_line(error)}
        every = [json.loads(one) for one in self._ranks.gather(json.dumps(told))]
        if mine is not None and not isinstance(mine, (SpotTrainingError, OSError, RuntimeError)):
            raise mine  # a mistake in the script, not in the file system
        for rank, one in enumerate(every):
            if "error" in one:
                whose = f"rank {rank}: " if self._ranks.size > 1 else ""
                text = f"{whose}{one['error']}"
                placed = text if self.where in text else f"{self.where}: {text}"
                raise _KINDS.get(one["kind"], SaveError)(placed) from mine
        return [one["value"] for one in every]
