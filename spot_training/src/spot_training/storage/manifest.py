"""The manifest of a checkpoint: ``manifest.json`` with its step, metadata and files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

FILE: Final = "manifest.json"
VERSION: Final = 1
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

    def to_text(self) -> str:
        """Return the manifest as one line of JSON with its own checksum."""
        body = {"version": VERSION, **asdict(self)}
        return json.dumps({**body, "checksum": _checksum(body)}, sort_keys=True) + "\n"


def parse(text: str) -> CheckpointManifest:
    """Parse what ``to_text`` wrote; raises ``ValueError`` if invalid or damaged."""
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise ValueError(f"{FILE} has version {body['version']}, allowed: {VERSION}")
        if body.pop("checksum") != _checksum(body):
            raise ValueError(f"{FILE} is damaged")
        files = {
            str(path): File(int(file["size"]), str(file["sha256"])) for path, file in body["files"].items()
        }
        return CheckpointManifest(
            int(body["step"]),
            int(body["world_size"]),
            str(body["fingerprint"]),
            dict(body["meta"]),
            files,
        )
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{FILE} is damaged") from None


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
