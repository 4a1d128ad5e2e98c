"""Entry point of the Pulumi program; the engine runs this file by its path."""

from __future__ import annotations

import sys
from pathlib import Path

# Import from this checkout first: a copied environment has another checkout installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pulumi

try:
    from infra.program.stack import declare
except ModuleNotFoundError as error:
    raise pulumi.RunError(f"package {error.name} is not installed, run: make setup") from None

declare()
