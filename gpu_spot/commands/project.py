"""Locates the Pulumi project that a command works on."""

from __future__ import annotations

from pathlib import Path

from pulumi_declared.errors import UserError


def find() -> Path:
    """Return the nearest directory that holds ``Pulumi.yaml``: the current one or an ancestor."""
    current = Path.cwd()
    for directory in (current, *current.parents):
        if (directory / "Pulumi.yaml").is_file():
            return directory
    raise UserError(f"no Pulumi.yaml in {current} or a parent directory")
