"""Entry point for the Pulumi engine: ``pulumi preview --policy-pack policy``."""

from __future__ import annotations

import sys
from pathlib import Path

# Import this checkout: a virtual environment copied from another has that one installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pulumi_policy import PolicyPack

from policy.pack import NAME, policies

if __name__ == "__main__":
    PolicyPack(NAME, policies())
