"""The Pulumi project that a command works on."""

from __future__ import annotations

from pathlib import Path

from pulumi_declared.errors import UserError


def find() -> Path:
    """Return the nearest folder, the current one or above it, that holds ``Pulumi.yaml``."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise UserError(f"no Pulumi.yaml in {here} or above it")
