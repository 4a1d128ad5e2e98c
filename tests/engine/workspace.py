"""A project, its state and its plugins in a temporary folder, and Pulumi's command in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_spot.declared.stackfile import folder_of_stacks
from packages.pulumi_standins import schema, world
from packages.pulumi_standins.world import World
from tests.apart import SHARED_VARIABLE
from tests.oracles.replacements import FORCES_NEW
from tests.waiting import TIMEOUT_SECONDS, run_process, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
STACKS: Final = tuple(sorted(path.name.split(".")[1] for path in (ROOT / "stacks").glob("Pulumi.*.yaml")))
PASSPHRASE: Final = "correct horse"


@dataclass(frozen=True)
class Run:
    code: int
    output: str
    seconds: float
    document: dict[str, Any]

    def operations(self) -> dict[str, int]:
        """Return how many resources have each operation, of ``preview --json``."""
        return dict(Counter(step["op"] for step in self.document["steps"]))


class Workspace:
    """A stack on a local backend, with the stand-ins as its plugins."""

    def __init__(self, folder: Path, stack: str, *, project: Path = ROOT) -> None:
        """Prepare the folder; ``project`` has ``Pulumi.yaml``, and the stack file if there is one."""
        self.folder, self.stack = folder, stack
        self.project = folder / "project"
        self.world = World(folder / "world")
        kinds = {kind: sorted(inputs) for kind, inputs in FORCES_NEW.items()}
        (self.world.folder / "forces_new.json").write_text(json.dumps(kinds), "utf-8")
        self._link(project)
        self._install_plugins()
        (folder / "state").mkdir()
        self.environment = self._environment()
        self.run("stack", "init", stack)

    def _link(self, project: Path) -> None:
        """Copy what Pulumi's command writes to, and link what it only reads."""
        self.project.mkdir(parents=True)
        for path in project.iterdir():
            if path.name == "stacks":
                shutil.copytree(path, self.project / path.name)
            elif path.name.startswith("Pulumi.") or project != ROOT:
                shutil.copy(path, self.project / path.name)
            elif path.name not in ("out", ".git"):
                (self.project / path.name).symlink_to(path.resolve() if path.is_symlink() else path)

    def _install_plugins(self) -> None:
        for package in ("aws", "kubernetes"):
            version = metadata.version(f"pulumi-{package}")
            plugin = self.folder / "home" / "plugins" / f"resource-{package}-v{version}"
            plugin.mkdir(parents=True)
            executable = plugin / f"pulumi-resource-{package}"
            command = f'exec "{sys.executable}" -m packages.pulumi_standins {package} "$@"'
            executable.write_text(f"#!/bin/sh\n{command}\n", "utf-8")
            executable.chmod(0o755)

    def _environment(self) -> dict[str, str]:
        schemas = Path(os.environ[SHARED_VARIABLE], "standin-schemas")
        schemas.mkdir(exist_ok=True)
        sources = (".", "packages/pulumi-on-moto/src", "packages/spot-training/src", "packages/spot-work/src")
        left_out = ("AWS_", "PULUMI_")
        return {key: value for key, value in os.environ.items() if not key.startswith(left_out)} | {
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in sources),
            world.VARIABLE: str(self.world.folder),
            schema.CACHE_VARIABLE: str(schemas),
        }

    def run(self, *arguments: str, code: int | None = 0, **environment: str) -> Run:
        """Run ``pulumi``; any exit status but ``code`` is an error, unless it is None."""
        command = ["pulumi", *arguments, "--non-interactive", "--color=never"]
        started = time.monotonic()
        done = run_process(command, cwd=self.project, env=self.environment | environment)
        output = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{output}"
        document = json.loads(done.stdout) if "--json" in arguments and done.returncode == 0 else {}
        return Run(done.returncode, output, time.monotonic() - started, document)

    def preview(self, *arguments: str, code: int | None = 0, **environment: str) -> Run:
        return self.run("preview", "--json", "--show-sames", *arguments, code=code, **environment)

    def up(self, *arguments: str, code: int | None = 0, **environment: str) -> Run:
        """Run ``pulumi up`` without its preview."""
        return self.run("up", "--yes", "--skip-preview", *arguments, code=code, **environment)

    def refresh(self, *arguments: str, code: int | None = 0) -> Run:
        return self.run("refresh", "--yes", "--skip-preview", *arguments, code=code)

    def destroy(self, code: int | None = 0) -> Run:
        return self.run("destroy", "--yes", "--skip-preview", code=code)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start ``pulumi`` in a process group of its own, and end that group afterwards."""
        process = subprocess.Popen(
            ["pulumi", *arguments, "--non-interactive", "--color=never"],
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # The language host of a killed engine, in a group of its own, ends by its own health check.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=TIMEOUT_SECONDS)

    def wait_until_it_hangs(self) -> None:
        """Wait until a provider has met its fault ``hang``."""
        wait_until((self.world.folder / "hangs").exists)

    def resources(self) -> list[dict[str, Any]]:
        exported = self.run("stack", "export").output
        resources: list[dict[str, Any]] = json.loads(exported)["deployment"].get("resources") or []
        return resources

    def edit(self, change: Any) -> None:
        """Apply a function to the keys of the stack file, which may change them."""
        path = folder_of_stacks(self.project) / f"Pulumi.{self.stack}.yaml"
        # By way of JSON, so that what a YAML alias repeats can be changed once.
        document = json.loads(json.dumps(yaml.safe_load(path.read_text("utf-8"))))
        change(document["config"])
        path.write_text(yaml.safe_dump(document), "utf-8")
