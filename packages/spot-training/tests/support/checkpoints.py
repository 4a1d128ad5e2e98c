"""Whether a checkpoint on a disk is whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

from spot_training.storage.manifest import FILE, CheckpointManifest, parse


def verified(checkpoint: Path) -> CheckpointManifest:
    """Return the manifest of a checkpoint; fail if a file is missing or damaged."""
    manifest = parse((checkpoint / FILE).read_text())
    for path, file in manifest.files.items():
        content = (checkpoint / path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256), path
    return manifest
