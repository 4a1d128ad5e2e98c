"""A machine's ``docker``, ``nvidia-smi`` and ``install`` as real processes, for tests to look into."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

_DOUBLE = Path(__file__).with_name("docker_double.py")


class FakeDocker:
    """The programs in a folder for ``PATH``, and what they keep."""

    def __init__(self, folder: Path, gpus: list[str]) -> None:
        self.path, self.store, self.root = folder / "bin", folder / "docker.json", folder / "root"
        self.path.mkdir()
        self.root.mkdir()
        self.gpus = self.root / "gpus"
        self.gpus.write_text("\n".join(gpus) + "\n")
        self.keep({"calls": [], "containers": {}, "networks": [], "missing": [], "logins": []})
        install = 'while [ "${1#--}" != "$1" ]; do shift; done\nmkdir -p "$FAKE_ROOT$1"\n'
        for name, text in (
            ("docker", f'#!/bin/sh\nexec {sys.executable} -S {_DOUBLE} "$@"\n'),
            ("nvidia-smi", f"#!/bin/sh\ncat {self.gpus}\n"),
            ("install", f"#!/bin/sh\n{install}"),
        ):
            (self.path / name).write_text(text)
            (self.path / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.path}:{os.environ.get('PATH', os.defpath)}",
            "FAKE_DOCKER": str(self.store),
            "FAKE_ROOT": str(self.root),
        }

    @property
    def state(self) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads(self.store.read_text())
        return kept

    def keep(self, state: dict[str, Any]) -> None:
        self.store.write_text(json.dumps(state))

    def change(self, **changes: Any) -> None:
        self.keep(self.state | changes)

    def tenants(self) -> dict[str, dict[str, Any]]:
        """Containers by tenant."""
        return {c["labels"]["gpu-spot.tenant"]: c for c in self.state["containers"].values()}

    def calls(self, *first: str) -> list[list[str]]:
        """The calls that begin with these words."""
        return [call for call in self.state["calls"] if tuple(call[: len(first)]) == first]
