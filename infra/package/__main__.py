"""Entry point for the Pulumi engine, which starts this directory as a plugin."""

from __future__ import annotations

import sys
from pathlib import Path

# Import from this checkout first: a copied environment has another checkout installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pulumi.provider import main

from infra.package.provider import Package

if __name__ == "__main__":
    main(Package(), sys.argv[1:])
