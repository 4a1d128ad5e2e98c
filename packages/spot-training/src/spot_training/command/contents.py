"""The checkpoints of a directory or URL: list, verify, export. Nothing there is changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spot_training.errors import RestoreError, SpotTrainingError, one_line
from spot_training.identity import name_of_run
from spot_training.storage.files import Files
from spot_training.storage.folder import store_of
from spot_training.storage.manifest import CheckpointManifest, name_of, parse, part_of
from spot_training.storage.retention import Retained, parse_retained
from spot_training.storage.store import Store


class CheckpointContent(NamedTuple):
    """One checkpoint; ``problem`` is empty if it is whole, as far as it was read."""

    name: str
    manifest: CheckpointManifest | None
    problem: str


def read(location: str, *, verifies: bool = False) -> list[CheckpointContent]:
    """Return the checkpoints, newest first; ``verifies``: read all files and compare their checksums."""
    store = _store(location)
    return [_read(store, name, verifies=verifies) for name in store.names()]


def table(checkpoints: Sequence[CheckpointContent]) -> Iterator[str]:
    """Yield the lines of a table; why a checkpoint stays is by the newest one that can be read."""
    retained = _retained(checkpoints)
    if not checkpoints:
        yield "no checkpoints"
    for name, manifest, problem in checkpoints:
        if manifest is None:
            yield f"{name}  {problem}"
            continue
        run = f"  run {name_of_run(manifest.run)}" if manifest.run else ""
        stays = "".join(f"  [{reason}]" for reason in retained.reasons(manifest.step))
        size, ranks = f"{manifest.size / 1e6:10.1f} MB", f"{manifest.world_size:3} rank(s)"
        yield f"{name}  {size}  {ranks}  {problem or 'whole'}{stays}{run}"


def step_to_export(location: str, *, pin: str | None = None) -> int:
    """Return the step of a pin, by default of the best checkpoint; ``RestoreError``: there is none."""
    retained = _retained(read(location))
    if pin is not None:
        if pin not in retained.pins:
            names = ", ".join(sorted(retained.pins)) or "none, no checkpoint has a name"
            raise RestoreError(f"{location} has no pin {pin!r}; its pins are: {names}")
        return retained.pins[pin]
    if retained.best is None:
        raise RestoreError(f"{location}: no checkpoint has a metric; keep(metric=...) stores it")
    return retained.best.step


def _retained(checkpoints: Sequence[CheckpointContent]) -> Retained:
    newest = next((manifest for _, manifest, _ in checkpoints if manifest is not None), None)
    return (newest and parse_retained(newest.retained)) or Retained()


def export(location: str, destination: Path, *, step: int | None = None, part: str | None = None) -> int:
    """Copy a verified checkpoint to a new directory, or one part's ``state_dict`` to a file; return its step.

    Raises ``RestoreError``: there is no such checkpoint, or none is whole.
    """
    if destination.exists():
        raise SpotTrainingError(f"{destination} exists; name a new path")
    store = _store(location)
    names = store.names() if step is None else [name_of(step)]
    problems = []
    for name in names:
        checkpoint = _read(store, name, verifies=True)
        if checkpoint.manifest is None or checkpoint.problem:
            problems.append(f"{name}: {checkpoint.problem}")
            continue
        new = destination.with_name(f".{destination.name}.new")
        folder = store.fetch(name)
        if part is None:
            shutil.rmtree(new, ignore_errors=True)
            shutil.copytree(folder, new)
        elif any((folder / part_of(0) / name).exists() for name in ("parts.pt", "shard.pt")):
            from spot_training.torch.shards.loading import export_part  # needs PyTorch

            export_part(folder, checkpoint.manifest.world_size, new, part)
        else:
            raise SpotTrainingError(f"{folder} has no parts; --part needs a checkpoint of torch.Loop")
        new.rename(destination)
        return checkpoint.manifest.step
    raise RestoreError(f"{location}: {'; '.join(problems) or 'no checkpoints'}")


def _read(store: Store, name: str, *, verifies: bool) -> CheckpointContent:
    try:
        manifest = parse(store.manifest(name))
    except FileNotFoundError:
        return CheckpointContent(name, None, "not there, or without a manifest")
    except (ValueError, OSError) as error:
        return CheckpointContent(name, None, one_line(error))
    try:
        problem = Files().problem(store.fetch(name), manifest.files) if verifies else ""
    except OSError as error:
        problem = f"a file cannot be read: {one_line(error)}"
    return CheckpointContent(name, manifest, problem)


def _store(location: str) -> Store:
    if "://" not in location and not Path(location).is_dir():
        raise SpotTrainingError(f"{location} is not a directory")
    return store_of(location)
