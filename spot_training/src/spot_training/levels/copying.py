"""Copies a committed checkpoint to the storage of another level, as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from spot_training.storage.hashing import hashed
from spot_training.storage.manifest import CheckpointManifest, File, part_of
from spot_training.storage.store import Store

_CHUNK: Final = 1 << 24  # bytes between two calls of ``check``


def copy_files(
    root: Path, manifest: CheckpointManifest, store: Store, stage: str, check: Callable[[], object]
) -> dict[str, File]:
    """Copy the files of all ranks from ``root`` to a stage of ``store``; return them as they were written.

    ``check`` may raise to end that early.
    """
    files: dict[str, File] = {}
    for part in map(part_of, range(manifest.world_size)):
        folder = store.part(stage, part)
        for path in manifest.files:
            if path.startswith(f"{part}/"):
                _copy(root / path, folder / path.removeprefix(f"{part}/"), check)
        files |= store.deliver(stage, part)
    return files


def _copy(source: Path, target: Path, check: Callable[[], object]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb", buffering=0) as reader, hashed(target) as writer:
        while chunk := reader.read(_CHUNK):
            check()
            writer.write(chunk)
