"""What version 0.1.0 of the package did with a checkpoint; never changed, to test that both ways are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
PLACE = {"step", "epoch", "batch", "samples"}
"""The keys of ``meta["place"]`` that ``Loop`` accepted."""


def read(checkpoint: Path) -> Mapping[str, Any]:
    """Return the manifest if that version had restored the checkpoint; raises ``ValueError`` if not."""
    body = json.loads((checkpoint / MANIFEST).read_text())
    if body["version"] != 1 or body.pop("checksum") != _checksum(body):
        raise ValueError("damaged")
    for path, file in body["files"].items():
        content = (checkpoint / path).read_bytes()
        if (len(content), hashlib.sha256(content).hexdigest()) != (file["size"], file["sha256"]):
            raise ValueError(f"{path} is damaged")
    if "place" in body["meta"] and set(body["meta"]["place"]) != PLACE:
        raise ValueError("Loop cannot be created")
    return {name: body[name] for name in ("step", "world_size", "fingerprint", "meta")}


def write(folder: Path, step: int, files: Mapping[str, bytes], meta: Mapping[str, Any]) -> None:
    """Write a checkpoint as that version did."""
    checkpoint = folder / f"step-{step:012d}"
    entries = {}
    for path, content in files.items():
        (checkpoint / path).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / path).write_bytes(content)
        entries[path] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    body = {
        "version": 1,
        "step": step,
        "world_size": 1,
        "fingerprint": "",
        "meta": dict(meta),
        "files": entries,
    }
    text = json.dumps({**body, "checksum": _checksum(body)}, sort_keys=True) + "\n"
    (checkpoint / MANIFEST).write_text(text)


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
