"""Atomic checkpoints: save, verify and restore."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from spot_training import errors, identity, rehearsal
from spot_training.errors import NoSpaceError, RestoreError, SaveError, SpotTrainingError, log, one_line, say
from spot_training.identity import TrainingRun
from spot_training.ranks import ALONE, RankCalls, Ranks
from spot_training.storage import manifest as manifests
from spot_training.storage.calls import BoundedCalls, RetryPolicy, os_error_behind
from spot_training.storage.files import Files
from spot_training.storage.folder import store_of
from spot_training.storage.lock import check_lease
from spot_training.storage.manifest import Checkpoint, CheckpointManifest, File, name_of, part_of, step_of
from spot_training.storage.retention import CheckpointRetention, Keep, Retained
from spot_training.storage.store import Store

FOLDER_VARIABLE: Final = "GPU_SPOT_CHECKPOINTS"
_STARTED_IN: Final = os.path.abspath(".")  # noqa: PTH100 # a directory that is gone has a name still
"""The working directory at the start: a script may go to one that is named by the time."""
_MAX_LINEAGE: Final = 100
Write: TypeAlias = Callable[[Path], object]
T = TypeVar("T")


class Checkpointer:
    """Keeps the newest ``keep`` checkpoints of one training in a directory or in S3, and those of ``Keep``.

    All ranks call ``restore`` and ``save`` at the same steps; each writes its own files, and rank 0 commits.
    A checkpoint with another ``fingerprint``, of the model, is rejected; with ``reshard`` another number of
    ranks may load it. One of another ``run`` is rejected and stays, unless the user names that run in
    ``$SPOT_TRAINING_TAKE_OVER`` or ``$SPOT_TRAINING_START_OVER``.
    """

    _skips_unreadable = False

    def __init__(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        keep: int = 3,
        keep_every: int | None = None,
        ranks: Ranks = ALONE,
        fingerprint: str = "",
        reshard: bool = False,
        run: TrainingRun | None = None,
        files: Files | None = None,
        retry_policy: RetryPolicy | None = None,
        store: Store | None = None,
    ) -> None:
        """``location``: default ``$GPU_SPOT_CHECKPOINTS``, else ``checkpoints`` where the process began.

        ``name``: of one of several trainings, a directory in ``location``. ``run``: default: not compared.
        ``keep_every``: the first checkpoint after each so many steps stays, too.
        """
        if keep < 1:
            raise SpotTrainingError(
                f"keep must be 1 or more (2 or more to survive a damaged one), not {keep}"
            )
        errors.print_errors_in_one_line()
        location = location or os.environ.get(FOLDER_VARIABLE) or f"{_STARTED_IN}/checkpoints"
        if (rehearsed := rehearsal.current()) is not None:
            location = f"{rehearsed.folder}/checkpoints"  # never the user's own
        is_relative = "://" not in str(location) and not Path(location).is_absolute()
        if is_relative and Path.cwd() != Path(_STARTED_IN):
            say(
                f"{location} is in {Path.cwd()}, and the process began in {_STARTED_IN}: a start in "
                "another directory would not find these checkpoints; use an absolute path"
            )
        if name is not None:
            if not name or name.startswith(".") or "/" in name:
                raise SpotTrainingError(
                    f"name must be a directory's name that does not begin with a dot, not {name!r}"
                )
            location = f"{str(location).rstrip('/')}/{name}"
        self._retry_policy = retry_policy or RetryPolicy()
        self._files = files or Files()
        self._store = store or store_of(location, self._files, self._retry_policy)
        self._retention = CheckpointRetention(self._store, keep, keep_every)
        self._together = RankCalls(ranks, self._store.location)
        self._calls = BoundedCalls(self._retry_policy.hang_seconds)
        self.ranks = ranks
        """The processes of the training."""
        self._fingerprint, self._reshard, self._run = fingerprint, reshard, run
        self.last_step: int | None = None
        """The step that this process last saved or restored."""
        self._before: list[str] = []
        """Ids of runs that this one was taken over from."""
        self._is_open = False
        self._lineage: Sequence[str] = (uuid.uuid4().hex[:8],)

    @property
    def location(self) -> str:
        """The directory or S3 URL."""
        return self._store.location

    @property
    def last_size(self) -> int | None:
        """The bytes of the checkpoint that this process last committed, on rank 0; else None."""
        return self._retention.size

    @property
    def lineage(self) -> Sequence[str]:
        """This process and those whose checkpoints it continues, the newest first."""
        return self._lineage

    @property
    def retained(self) -> Retained:
        """The checkpoints that stay beside the newest ones, of the history of this process."""
        return self._retention.retained

    def on_first(self, action: Callable[[], object]) -> None:
        """Run an action on rank 0, or raise its error on all ranks; all have its ``last_step`` then."""
        self.last_step = self._together.on_first(lambda: (action(), self.last_step)[1])

    def stop_waiting_before(self, seconds_left: Callable[[], float | None]) -> None:
        """Abandon storage calls that hang shortly before ``seconds_left()`` is 0; None: no deadline."""
        self._calls.seconds_left = seconds_left

    def restore(self, local: Checkpointer | None = None) -> Checkpoint | None:
        """Return the newest valid checkpoint, the same on all ranks; None if there are no checkpoints.

        Damaged ones are logged and skipped. ``local``: a level on this machine with more candidates.

        Raises:
            RestoreError: all are damaged, or the newest is of another format or cannot be read: to start at
                step 0 or at an older one would silently lose the training.
            MismatchError: the checkpoint is of another model or size; ``OtherRunError``: of another run.
            InUseError: another process uses the directory; ``SaveError``: it cannot be written.
        """
        try:
            return self._restore(local)
        except BaseException:
            for level in filter(None, (self, local)):
                level.close()
            raise

    def _restore(self, local: Checkpointer | None) -> Checkpoint | None:
        names = self.open()
        candidates: list[tuple[str, Checkpointer]] = [(name, self) for name in names]
        if local is not None:
            candidates += [(name, local) for name in local.continuing(names)]
            candidates.sort(key=lambda candidate: (candidate[0], candidate[1] is local), reverse=True)
        for name, level in candidates:
            checkpoint = level._load(name)
            if checkpoint is not None:
                self.last_step = next((step_of(old) for old in names if old <= name), None)
                level.last_step = checkpoint.step
                if self.ranks.rank == 0:
                    run = "" if self._run is None else f" of run {identity.name_of_run(checkpoint.run)}"
                    if self._run is not None and self._differences(checkpoint.run):
                        run += f", taken over by {self._run.name}"
                    say(f"{level.location}: goes on at step {checkpoint.step}{run}")
                return checkpoint
        for level in filter(None, (self, local)):
            bad = [name for name, of in candidates if of is level]
            if not bad and identity.started_over() != identity.DAMAGED:
                bad = level._on_first(level._store.damaged)
            if bad:
                raise RestoreError(
                    f"{level.location}: none of {', '.join(bad)} can be loaded; move them to start at"
                    f" step 0, or set {identity.START_OVER_VARIABLE}={identity.DAMAGED}"
                )
        return None

    def open(self) -> list[str]:
        """Acquire the directory; return the names of its checkpoints on all ranks, newest first.

        Raises ``InUseError``: another process uses it; ``SaveError``: it cannot be written.
        """
        return self._on_first(self._open)

    def continuing(self, names: Sequence[str]) -> list[str]:
        """Return the names of this level's checkpoints with the history of ``names``, of the level above."""
        return self.open()

    def _resume(self, manifest: CheckpointManifest) -> None:
        """Continue the history of a restored checkpoint."""
        self._retention.resume(manifest.retained)
        self._lineage = (self._lineage[0], *manifest.lineage[: _MAX_LINEAGE - 1])
        self._before = list(manifest.run.get("before", ()))
        if self._run is not None and manifest.run and self._run.id != manifest.run["id"]:
            self._before = [manifest.run["id"], *self._before][:_MAX_LINEAGE]

    def close(self) -> None:
        """Release the directory: another training may use it; ``save`` acquires it again."""
        if self.ranks.rank == 0:
            self._store.release()
        self._is_open = False

    def _differences(self, run: Mapping[str, Any], world_size: int | None = None) -> list[str]:
        if self._run is None or not run:
            return []
        return self._run.differences(run, same_ranks=world_size in (None, self.ranks.size))

    def save(
        self,
        step: int,
        write: Write,
        meta: Mapping[str, Any] | None = None,
        *,
        replace: bool = False,
        keep: Keep | None = None,
    ) -> None:
        """Write a checkpoint and delete the oldest ones; on return it is durable on all ranks.

        ``write`` writes this rank's files to the empty directory that it is given; it is called again after a
        transient error, and after the oldest checkpoint was removed because the disk was full (never the
        newest one). ``meta`` (JSON) and ``keep``, why the checkpoint stays, are taken from rank 0. If
        ``step`` was saved or restored last, only ``keep`` is stored, unless ``replace`` is true and the
        storage can replace a checkpoint (object stores cannot).

        Raises:
            SaveError: on all ranks; no checkpoint was committed, earlier ones are unchanged.
            InUseError: another process uses the directory, or the pod's lease was superseded.
        """
        if self.last_step == step and not (replace and self._store.replaces):
            self._retention.committed(step, self._on_first(partial(self._amend, step, keep)))
            return
        while True:
            try:
                self._save_once(step, write, dict(meta or {}), keep)
                break
            except NoSpaceError as error:
                if not self._on_first(partial(self._retention.drop_last, name_of(step))):
                    raise SaveError(str(error)) from None
        self.last_step = step

    def _save_once(self, step: int, write: Write, meta: Mapping[str, Any], keep: Keep | None) -> None:
        name = name_of(step)
        stage = self._on_first(partial(self._stage, name))
        try:
            files = self._write(stage, write)
            run = {**self._run.document(), "before": self._before} if self._run else {}
            manifest = CheckpointManifest(
                step, self.ranks.size, self._fingerprint, meta, files, run, lineage=self.lineage
            )
            stored = self._together.on_first(lambda: self._commit(stage, name, manifest, keep))
            self._retention.committed(step, stored)
        except Exception:
            if self.ranks.rank == 0:
                with contextlib.suppress(OSError):
                    self._calls.call(self.location, lambda: self._store.drop(stage))
            raise

    def _call(self, description: str, action: Callable[[], T]) -> T:
        """Call the storage: retried after transient errors, abandoned if it hangs."""
        return self._retry_policy.call(description, lambda: self._calls.call(description, action))

    def _on_first(self, action: Callable[[], T]) -> T:
        """Call the storage on rank 0; return the result (JSON), or raise the error, on all ranks."""
        return self._together.on_first(lambda: self._call(self.location, action))

    def _open(self) -> list[str]:
        check_lease()
        self._store.acquire()
        self._store.clean()
        self._is_open = True
        names, label, foreign = self._store.names(), identity.started_over(), list[str]()
        for name in names if label else ():
            with contextlib.suppress(FileNotFoundError):
                foreign += [name] * (manifests.run_id(self._store.manifest(name)) == label)
        for name in foreign:
            self._store.exclude(name, label)
        if foreign:
            say(f"{self.location}: {', '.join(foreign)} of run {label} set aside; starting over")
        return [name for name in names if name not in foreign]

    def _stage(self, name: str) -> str:
        if not self._is_open:  # a training that never restores
            self._open()
        self._store.acquire()
        while not self._retention.fits() and self._retention.drop_last(name):
            pass
        return self._store.stage(name)

    def _write(self, stage: str, write: Write) -> dict[str, File]:
        """Write each rank's files; return all files."""
        part = part_of(self.ranks.rank)

        def attempt() -> dict[str, Any]:
            try:
                write(folder := self._store.part(stage, part))
                self._files.copy_links(folder)
            except RuntimeError as error:
                raise os_error_behind(error, self._store.free_bytes) from None
            return {path: asdict(file) for path, file in self._store.deliver(stage, part).items()}

        parts = self._together.on_all(lambda: self._call(f"{self.location}: save", attempt))
        return {path: File(**file) for files in parts for path, file in files.items()}

    def _commit(
        self, stage: str, name: str, manifest: CheckpointManifest, keep: Keep | None
    ) -> dict[str, Any]:
        """Commit a staged checkpoint, then delete what need not stay; return what it stores of those."""
        stored = self._call(self.location, lambda: self._planned(manifest.step, keep))
        text = replace(manifest, retained=stored).to_text()
        manifests.parse(text)  # what could not be restored is not committed

        def commit() -> None:
            check_lease()
            self._store.commit(stage, name, text)

        self._call(self.location, commit)
        self._retention.committed(manifest.step, stored)

        def clean_up() -> None:
            for old in self._retention.removable(name):
                self._store.remove(old)
            self._retention.saved(manifest.size)

        try:
            self._calls.call(self.location, clean_up)
        except OSError as error:
            log.warning("%s: old checkpoint not deleted: %s", self.location, one_line(error))
        return stored

    def _planned(self, step: int, keep: Keep | None) -> dict[str, Any]:
        return self._retention.planned(step, keep, self.last_step).document()

    def _amend(self, step: int, keep: Keep | None) -> dict[str, Any]:
        """Store why a committed checkpoint stays; return that."""
        before = self.retained.document()
        stored = self._planned(step, keep) if keep else before
        if stored != before:
            check_lease()
            self._store.acquire()
            text = manifests.with_keys(self._store.manifest(name_of(step)), retained=stored)
            self._store.amend(name_of(step), text)
        return stored

    def _load(self, name: str) -> Checkpoint | None:
        """Return a checkpoint if all ranks verify their files; else log the reason and return None."""
        text, reason, damaged = self._together.on_first(lambda: self._manifest(name))
        if not reason:
            manifest = manifests.parse(text)
            self._check(name, manifest)
            results = self._together.on_all(lambda: self._verify(name, manifest))
            reason = next((text for text, _ in results if text), "")
            damaged = any(is_damaged for _, is_damaged in results)
            if not reason:
                self._resume(manifest)
                path = self._store.fetch(name)
                return Checkpoint(manifest.step, path, manifest.meta, manifest.world_size, manifest.run)
        if not (damaged or self._skips_unreadable):
            raise RestoreError(
                f"{self.location}/{name} cannot be read: {reason}; it stays: start again, or move it away"
                " to go on at an older one"
            )
        if self.ranks.rank == 0:
            log.warning("%s/%s is skipped: %s", self.location, name, reason)
            if damaged:
                with contextlib.suppress(OSError):
                    self._store.quarantine(name)
        return None

    def _manifest(self, name: str) -> tuple[str, str, bool]:
        """Return a manifest's text, or the reason why it cannot be used, and whether it is damaged."""
        text = ""
        try:
            text = self._call(self.location, lambda: self._store.manifest(name))
            manifests.parse(text)
        except manifests.OtherFormatError as error:
            raise RestoreError(
                f"{self.location}/{name}: {error}; it stays: install the version of spot_training that wrote"
                f" it, or use another directory{identity.or_start_over(manifests.run_id(text))}"
            ) from None
        except FileNotFoundError:
            return "", "it has no manifest", True
        except (ValueError, OSError) as error:
            return "", one_line(error), isinstance(error, ValueError)
        return text, "", False

    def _verify(self, name: str, manifest: CheckpointManifest) -> tuple[str, bool]:
        """Return why this rank's files are not those of the manifest, and whether they are damaged."""
        parts = {part_of(rank) for rank in range(self.ranks.rank, manifest.world_size, self.ranks.size)}
        files = {path: file for path, file in manifest.files.items() if path.split("/")[0] in parts}
        try:
            root = self._call(self.location, lambda: self._store.fetch(name))
            problem = self._call(self.location, lambda: self._files.problem(root, files))
        except FileNotFoundError as error:
            return f"{str(error.filename).rpartition(f'{name}/')[2]} is missing", True
        except (OSError, ValueError) as error:
            return one_line(error), False
        return problem, bool(problem)

    def _check(self, name: str, manifest: CheckpointManifest) -> None:
        if manifest.fingerprint != self._fingerprint:
            raise errors.MismatchError(
                f"{self.location}/{name} is of another model: its fingerprint is "
                f"{manifest.fingerprint or 'none'}, and this model's {self._fingerprint or 'none'}; "
                f"use another directory{identity.or_start_over(manifest.run.get('id', ''))}"
            )
        differences = self._differences(manifest.run, manifest.world_size)
        if self._run is not None and differences and not identity.is_taken_over(manifest.run):
            raise errors.OtherRunError(
                f"{self.location}/{name} {self._run.refusal(manifest.run, differences)}"
            )
        if manifest.world_size != self.ranks.size and not self._reshard:
            raise errors.MismatchError(
                f"{self.location}/{name} was saved by {manifest.world_size} processes, and can be "
                f"loaded only by as many, not by {self.ranks.size}"
            )
