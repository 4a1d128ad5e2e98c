"""The minimal stack: brought up by the real ``pulumi`` until its worker reports, destroyed by its state."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from contracts import names
from gpu_spot.tables import deployed_tables
from research.smoke.bed import Bed, Falsified

STACK: Final = "smoke"
CONFIG: Final = Path(__file__).with_name("Pulumi.smoke.yaml")
BOOT_SECONDS: Final = 900.0
"""Wait from the end of the deployment to the first heartbeat."""


def _pulumi(words: Sequence[str], environment: Mapping[str, str], project: Path) -> None:
    """Run ``pulumi``; raises ``CalledProcessError`` if it fails, ``OSError`` if it is missing."""
    subprocess.run(["pulumi", *words], cwd=project, env=dict(environment), check=True)  # noqa: S603, S607


@dataclass(frozen=True)
class SmokeStack:
    """The stack, whose state is in ``folder`` on this machine; ``project`` holds ``Pulumi.yaml``."""

    project: Path
    folder: Path
    pulumi: Callable[[Sequence[str], Mapping[str, str], Path], None] = _pulumi

    def up(self) -> None:
        """Create the stack of the checkout. Errors as of ``_pulumi``."""
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        self._run("stack", "select", "--create", STACK)
        self._run("up", "--yes", "--skip-preview", "--config-file", str(CONFIG))

    def destroy(self) -> None:
        """Destroy what the state holds, and nothing else. Errors as of ``_pulumi``."""
        if (self.folder / "state").exists():
            self._run("destroy", "--yes", "--skip-preview", "--config-file", str(CONFIG))

    def _run(self, *words: str) -> None:
        backend = (self.folder / "state").absolute().as_uri()
        secrets = {"PULUMI_BACKEND_URL": backend, "PULUMI_CONFIG_PASSPHRASE": ""}
        stack = () if words[0] == "stack" else ("--stack", STACK)
        self.pulumi([*words, *stack, "--non-interactive"], os.environ | secrets, self.project)


def wait_for_heartbeat(bed: Bed, seconds: float = BOOT_SECONDS) -> str:
    """Return what the first worker of the stack reported. Raises ``Falsified`` if none does in time."""
    client = bed.clients("dynamodb")
    tables = deployed_tables(client, STACK)["registry"]
    if len(tables) != 1:
        raise Falsified(f"tables gpu-spot-{STACK}-registry-…: {', '.join(tables) or 'none'}, expected is one")
    scan = partial(client.scan, TableName=tables[0], ConsistentRead=True)
    rows = bed.wait_until(lambda: scan()["Items"], "the first heartbeat in the worker registry", seconds)
    return f"worker {rows[0][names.REGISTRY_SORT_KEY]['S']} reported"
