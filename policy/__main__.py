"""Entry point for the Pulumi engine: ``pulumi preview --policy-pack policy``."""

from __future__ import annotations

import sys
from pathlib import Path

# This checkout's code first: an environment that was copied with it has the other one installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pulumi_policy import PolicyPack

from policy.pack import NAME, policies

if __name__ == "__main__":
    PolicyPack(NAME, policies())
