"""What a checkpoint says of itself: ``manifest.json``, the file that makes a folder a checkpoint."""

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
    """Return the folder's name for a step; names sort as steps do."""
    return f"step-{step:012d}"


def step_of(name: str) -> int | None:
    """Return the step of a checkpoint's name; None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def part_of(rank: int) -> str:
    """Return the folder, in the checkpoint's, that a rank writes."""
    return f"rank-{rank:05d}"


@dataclass(frozen=True)
class File:
    """What a file of a checkpoint must be."""

    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One checkpoint. ``files`` by path below its folder; ``meta`` is the adapter's, JSON."""

    step: int
    world_size: int
    fingerprint: str
    meta: Mapping[str, Any]
    files: Mapping[str, File]

    def to_text(self) -> str:
        """Return it as JSON, one line, with a checksum of its own."""
        body = {"version": VERSION, **asdict(self)}
        return json.dumps({**body, "checksum": _checksum(body)}, sort_keys=True) + "\n"


def parse(text: str) -> Manifest:
    """Read what ``to_text`` wrote; ``ValueError`` says what is wrong with anything else."""
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise ValueError(f"{FILE} has version {body['version']}, known: {VERSION}")
        if body.pop("checksum") != _checksum(body):
            raise ValueError(f"{FILE} is damaged")
        files = {str(path): File(int(one["size"]), str(one["sha256"])) for path, one in body["files"].items()}
        return Manifest(
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
