"""Entry point for the Pulumi engine, which runs this file by its path."""

from __future__ import annotations

import sys
from pathlib import Path

# This checkout's code first: an environment that was copied with it has the other one installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pulumi

try:
    from infra.program.stack import declare
except ModuleNotFoundError as missing:
    raise pulumi.RunError(f"package {missing.name} is not installed (run: make setup)") from None

declare()
