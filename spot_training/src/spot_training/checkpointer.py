"""Atomic checkpoints: save, verify and restore."""

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

from spot_training.deprecation import deprecated_name, module_alias, renamed_arguments
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
from spot_training.storage.manifest import CheckpointManifest, File, name_of, parse, part_of
from spot_training.storage.retry import RetryPolicy
from spot_training.storage.store import Store

FOLDER_VARIABLE: Final = "GPU_SPOT_CHECKPOINTS"
Write: TypeAlias = Callable[[Path], object]
_ERROR_TYPES: Final[Mapping[str, type[SpotTrainingError]]] = {
    error.__name__: error for error in (InUseError, MismatchError, RestoreError, SaveError, SpotTrainingError)
}
_log = logging.getLogger("spot_training")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    step: int
    path: Path
    """Its directory, read-only; each rank's files are in ``part(rank)``."""
    meta: Mapping[str, Any]
    """The ``meta`` that rank 0 passed to ``save``."""
    world_size: int
    """The number of ranks that wrote it."""

    def part(self, rank: int = 0) -> Path:
        """Return the directory with the files of a rank."""
        return self.path / part_of(rank)


def store_of(location: str | os.PathLike[str], files: Files, retry_policy: RetryPolicy) -> Store:
    """Return the store of a directory or of ``s3://bucket/prefix``."""
    if str(location).startswith("s3://"):
        from spot_training.storage.s3 import S3Store  # needs boto3, which most environments lack

        return S3Store(str(location))
    return FolderStore(Path(location), files, retry_policy)


class Checkpointer:
    """Keeps the newest ``keep`` checkpoints of one training in a directory or in S3.

    All ranks of ``ranks`` call ``restore`` and ``save`` at the same steps; each writes its own files, and
    rank 0 commits after all are done. ``fingerprint`` identifies the model, for example by its shapes: a
    checkpoint with another fingerprint is rejected. With ``reshard`` another number of ranks may load it.
    """

    @renamed_arguments(place="location", patience="retry_policy")
    def __init__(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        keep: int = 3,
        ranks: Ranks = ALONE,
        fingerprint: str = "",
        reshard: bool = False,
        files: Files | None = None,
        retry_policy: RetryPolicy | None = None,
        store: Store | None = None,
    ) -> None:
        """``location``: default ``$GPU_SPOT_CHECKPOINTS``, else ``checkpoints`` in the working directory."""
        if keep < 1:
            raise SpotTrainingError(
                f"keep is {keep}, allowed: 1 or more (2 or more to survive a damaged one)"
            )
        location = location or os.environ.get(FOLDER_VARIABLE) or "checkpoints"
        self._retry_policy = retry_policy or RetryPolicy()
        self._files = files or Files()
        self._store = store or store_of(location, self._files, self._retry_policy)
        self._keep = keep
        self._ranks = ranks
        self._fingerprint = fingerprint
        self._reshard = reshard
        self._last_step: int | None = None
        self._is_open = False

    @property
    def location(self) -> str:
        """The directory or S3 URL."""
        return self._store.location

    @property
    def where(self) -> str:
        """Deprecated alias of `location`."""
        deprecated_name("Checkpointer.where", "Checkpointer.location")
        return self.location

    @property
    def last_step(self) -> int | None:
        """The step that this process last saved or restored."""
        return self._last_step

    def restore(self) -> Checkpoint | None:
        """Return the newest valid checkpoint, the same on all ranks; None if there are no checkpoints.

        Damaged checkpoints are logged and skipped.

        Raises:
            RestoreError: all checkpoints are damaged; starting at step 0 would silently lose the training.
            MismatchError: the checkpoint is of another model or world size.
            InUseError: another process uses the directory.
            SaveError: the directory cannot be written.
        """
        names = json.loads(self._on_rank_0(lambda: self._retry_policy.call(self.location, self._open)))
        for name in names:
            checkpoint = self._load(name)
            if checkpoint is not None:
                self._last_step = checkpoint.step
                _log.info("%s: resuming at step %d", self.location, checkpoint.step)
                return checkpoint
        if names:
            raise RestoreError(
                f"{self.location}: none of {', '.join(names)} can be loaded; move them to start at step 0"
            )
        return None

    def save(self, step: int, write: Write, meta: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint and delete the oldest ones; on return it is durable on all ranks.

        ``write`` writes this rank's files to the empty directory that it is given; it is called again after a
        transient error. ``meta`` (JSON) is taken from rank 0. Does nothing if ``step`` was saved or restored
        last.

        Raises:
            SaveError: on all ranks; no checkpoint was committed, earlier ones are unchanged.
        """
        if self._last_step == step:
            return
        name = name_of(step)
        stage = self._on_rank_0(lambda: self._retry_policy.call(self.location, lambda: self._stage(name)))
        try:
            files = self._write(stage, write)
            manifest = CheckpointManifest(step, self._ranks.size, self._fingerprint, dict(meta or {}), files)
            self._on_rank_0(lambda: self._commit(stage, name, manifest))
        except Exception:
            if self._ranks.rank == 0:
                with contextlib.suppress(OSError):
                    self._store.drop(stage)
            raise
        self._last_step = step

    def _open(self) -> str:
        self._store.acquire()
        self._store.clean()
        self._is_open = True
        return json.dumps(self._store.names())

    def _stage(self, name: str) -> str:
        if not self._is_open:  # a training that never restores
            self._open()
        self._store.acquire()
        return self._store.stage(name)

    def _write(self, stage: str, write: Write) -> dict[str, File]:
        """Write each rank's files; return all files."""
        part = part_of(self._ranks.rank)

        def attempt() -> str:
            write(self._store.part(stage, part))
            return json.dumps({path: asdict(file) for path, file in self._store.deliver(stage, part).items()})

        texts = self._on_all_ranks(lambda: self._retry_policy.call(f"{self.location}: save", attempt))
        return {path: File(**file) for text in texts for path, file in json.loads(text).items()}

    def _commit(self, stage: str, name: str, manifest: CheckpointManifest) -> str:
        text = manifest.to_text()
        self._retry_policy.call(self.location, lambda: self._store.commit(stage, name, text))
        try:
            # Newer checkpoints were skipped by restore() and do not count.
            restorable = [committed for committed in self._store.names() if committed <= name]
            for old in restorable[self._keep :]:
                self._store.remove(old)
        except OSError as error:
            _log.warning("%s: old checkpoint not deleted: %s", self.location, one_line(error))
        return ""

    def _load(self, name: str) -> Checkpoint | None:
        """Return a checkpoint if all ranks verify their files; else log the reason and return None."""
        document = json.loads(self._on_rank_0(lambda: json.dumps(self._manifest(name))))
        manifest, reason, damaged = None, document["reason"], document["damaged"]
        if not reason:
            manifest = parse(document["manifest"])
            self._check(name, manifest)
            results = [
                json.loads(result) for result in self._ranks.gather(json.dumps(self._verify(name, manifest)))
            ]
            reason = next((result["reason"] for result in results if result["reason"]), "")
            damaged = any(result["damaged"] for result in results)
        if manifest is not None and not reason:
            return Checkpoint(manifest.step, self._store.fetch(name), manifest.meta, manifest.world_size)
        if self._ranks.rank == 0:
            _log.warning("%s/%s is skipped: %s", self.location, name, reason)
            if damaged:
                with contextlib.suppress(OSError):
                    self._store.quarantine(name)
        return None

    def _manifest(self, name: str) -> dict[str, Any]:
        """Return a manifest's text, or the reason why it cannot be used and whether it is damaged."""
        try:
            text = self._retry_policy.call(self.location, lambda: self._store.manifest(name))
            parse(text)
        except (ValueError, FileNotFoundError) as error:
            missing = isinstance(error, FileNotFoundError)
            return {"reason": "it has no manifest" if missing else one_line(error), "damaged": True}
        except OSError as error:
            return {"reason": one_line(error), "damaged": False}
        return {"manifest": text, "reason": "", "damaged": False}

    def _verify(self, name: str, manifest: CheckpointManifest) -> dict[str, Any]:
        """Compare this rank's files with the manifest."""
        parts = {part_of(rank) for rank in range(self._ranks.rank, manifest.world_size, self._ranks.size)}
        try:
            root = self._retry_policy.call(self.location, lambda: self._store.fetch(name))
            for path, expected in manifest.files.items():
                if path.split("/")[0] not in parts:
                    continue
                size, digest = self._retry_policy.call(
                    self.location, partial(self._files.digest, root / path)
                )
                if size != expected.size:
                    return {"reason": f"{path} has {size} of {expected.size} bytes", "damaged": True}
                if digest != expected.sha256:
                    return {"reason": f"{path} has a wrong checksum", "damaged": True}
        except FileNotFoundError as error:
            return {"reason": f"{Path(str(error.filename)).name} is missing", "damaged": True}
        except OSError as error:
            return {"reason": one_line(error), "damaged": False}
        return {"reason": "", "damaged": False}

    def _check(self, name: str, manifest: CheckpointManifest) -> None:
        if manifest.fingerprint != self._fingerprint:
            raise MismatchError(
                f"{self.location}/{name} is of another model: fingerprint {manifest.fingerprint or 'none'}, "
                f"allowed: {self._fingerprint or 'none'}"
            )
        if manifest.world_size != self._ranks.size and not self._reshard:
            raise MismatchError(
                f"{self.location}/{name} was saved by {manifest.world_size} processes, "
                f"allowed: {self._ranks.size}"
            )

    def _on_rank_0(self, action: Callable[[], str]) -> str:
        """Run an action on rank 0 and return its result, or raise its error, on all ranks."""
        return self._on_all_ranks(action if self._ranks.rank == 0 else str)[0]

    def _on_all_ranks(self, action: Callable[[], str]) -> list[str]:
        """Run an action on all ranks; return their results. If one fails, all ranks raise."""
        local_error: Exception | None = None
        try:
            outcome = {"value": action()}
        except Exception as error:
            local_error = error
            kind = type(error).__name__ if isinstance(error, SpotTrainingError) else SaveError.__name__
            outcome = {"kind": kind, "error": one_line(error)}
        outcomes = [json.loads(result) for result in self._ranks.gather(json.dumps(outcome))]
        if local_error is not None and not isinstance(
            local_error, (SpotTrainingError, OSError, RuntimeError)
        ):
            raise local_error  # a mistake in the script, not in the file system
        for rank, result in enumerate(outcomes):
            if "error" in result:
                prefix = f"rank {rank}: " if self._ranks.size > 1 else ""
                text = f"{prefix}{result['error']}"
                message = text if self.location in text else f"{self.location}: {text}"
                raise _ERROR_TYPES.get(result["kind"], SaveError)(message) from local_error
        return [result["value"] for result in outcomes]


__getattr__ = module_alias(__name__, {"Saved": ("Checkpoint", Checkpoint)})
