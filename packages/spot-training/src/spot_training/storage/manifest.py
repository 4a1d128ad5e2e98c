"""A checkpoint and its manifest: ``manifest.json`` with its step, metadata and files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

FILE: Final = "manifest.json"
VERSION: Final = 1
"""The format that a reader must know. Versions of this package add keys, which older ones ignore; another
number means that an older one must not read it."""
_NAME: Final = re.compile(r"step-(\d{12})")


def name_of(step: int) -> str:
    """Return the directory name for a step; names sort in the order of steps."""
    return f"step-{step:012d}"


def step_of(name: str) -> int | None:
    """Return the step of a checkpoint's name; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def part_of(rank: int) -> str:
    """Return the name of a rank's directory in a checkpoint."""
    return f"rank-{rank:05d}"


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
    run: Mapping[str, Any] = field(default_factory=dict)
    """``TrainingRun.document`` of the run that wrote it."""

    def part(self, rank: int = 0) -> Path:
        """Return the directory with the files of a rank."""
        return self.path / part_of(rank)


class OtherFormatError(ValueError):
    """The manifest is of a format that this version does not read."""


@dataclass(frozen=True)
class File:
    """The expected size and checksum of a file."""

    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class CheckpointManifest:
    """One checkpoint. ``files``: by path relative to its directory; ``meta``: JSON of the adapter."""

    step: int
    world_size: int
    fingerprint: str
    meta: Mapping[str, Any]
    files: Mapping[str, File]
    run: Mapping[str, Any] = field(default_factory=dict)
    """``TrainingRun.document`` of the run that wrote it; empty: unknown."""
    retained: Mapping[str, Any] = field(default_factory=dict)
    """``Retained.document``: the checkpoints of its history that stay beside the newest ones."""
    lineage: Sequence[str] = ()
    """The process that wrote it and those that it continued, the newest first; empty: unknown."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def continues(self, manifest: CheckpointManifest) -> bool:
        """Return whether the process that wrote it is, or continued, the one that wrote ``manifest``."""
        return bool(manifest.lineage) and manifest.lineage[0] in self.lineage

    def to_text(self) -> str:
        """Return the manifest as one line of JSON with its own checksum."""
        return _with_checksum({"version": VERSION, **asdict(self)})


def parse(text: str) -> CheckpointManifest:
    """Parse what ``to_text`` of this version or another wrote; unknown keys are ignored.

    Raises:
        OtherFormatError: the format is another one; the checkpoint may be whole.
        ValueError: it is damaged.
    """
    try:
        body = json.loads(text)
        if isinstance(body, dict) and body.get("version") != VERSION:
            raise OtherFormatError(f"{FILE} has format {body.get('version')}, this version reads {VERSION}")
        if body.pop("checksum") != _checksum(body):
            raise ValueError(f"{FILE} is damaged")
        files = {
            _inside(path): File(int(file["size"]), str(file["sha256"]))
            for path, file in body["files"].items()
        }
        step, world_size = int(body["step"]), int(body["world_size"])
        more = dict(body["run"]), body["retained"], tuple(map(str, body["lineage"]))
        return CheckpointManifest(
            step, world_size, str(body["fingerprint"]), dict(body["meta"]), files, *more
        )
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{FILE} is damaged") from None


def with_keys(text: str, **values: Any) -> str:
    """Return a manifest's text with other values; unknown keys stay. Raises ``ValueError``: it is damaged."""
    parse(text)
    body = {**json.loads(text), **values}
    del body["checksum"]
    return _with_checksum(body)


def run_id(text: str) -> str:
    """Return the id of a manifest's run, of other formats too; empty if it has none."""
    try:
        return str(json.loads(text)["run"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _inside(path: str) -> str:
    """Return the path of a file if it is within a rank's directory: it may come from another writer."""
    first, *rest = path.split("/")
    if not first.startswith(part_of(0)[:5]) or not rest or {"", ".", ".."} & set(rest):
        raise ValueError(f"{FILE} names the file {path!r}, which must be {part_of(0)}/…")
    return path


def _with_checksum(body: Mapping[str, Any]) -> str:
    """Return a line that `parse` accepts: JSON makes texts of a mapping's keys, and sorts them after that."""
    body = json.loads(json.dumps(body))
    return json.dumps({**body, "checksum": _checksum(body)}, sort_keys=True) + "\n"


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
