"""Entry point of the plugins: ``python -m packages.pulumi_standins aws ENGINE_ADDRESS``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from packages.pulumi_standins import server
from packages.pulumi_standins.world import VARIABLE, World


def provider(package: str) -> server.Provider:
    """Return a stand-in; each imports what it needs, because the engine waits for every plugin."""
    if package == "kubernetes":
        from packages.pulumi_standins.kubernetes import Kubernetes

        return Kubernetes()
    from packages.pulumi_standins.aws import Aws

    return Aws()


if __name__ == "__main__":
    server.serve(provider(sys.argv[1]), World(Path(os.environ[VARIABLE])))
