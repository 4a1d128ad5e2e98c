"""What the program declares, as values that tests can ask."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_spot.declared.stackfile import load
from tests.apart import SHARED_VARIABLE, apart
from tests.infra import program

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "stacks" / "Pulumi.dev.yaml"
STACKS = ("dev", "fleet", "prod", "research")


@dataclass(frozen=True)
class Run:
    stack: str
    declared: list[dict[str, Any]]
    lookups: list[str]
    exports: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    """The stack file's configuration."""

    def identities(self) -> list[tuple[str, str]]:
        return sorted((one["type"], one["name"]) for one in self.declared)

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Inputs by logical name of all resources (no components) whose type ends in ``kind``."""
        return {
            one["name"]: one["inputs"]
            for one in self.declared
            if one["custom"] and one["type"].endswith(f":{kind}")
        }

    def physical(self, name: str) -> str:
        return f"gpu-spot-{self.stack}-{name}"

    def the(self, kind: str, name: str) -> dict[str, Any]:
        return self.of(kind)[name]

    def policy(self, role: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.the("RolePolicy", role)["policy"])
        return document

    def statements(self, role: str) -> dict[str, dict[str, Any]]:
        return {statement["Sid"]: statement for statement in self.policy(role)["Statement"]}

    def config(self, group: str) -> dict[str, Any]:
        """The configuration of a group that the controller reads."""
        read: dict[str, Any] = json.loads(self.the("Parameter", f"{group}-config")["insecureValue"])
        return read

    def alarms(self) -> dict[str, dict[str, Any]]:
        """Inputs of all alarms by the name that an operator sees, without the stack's prefix."""
        return self.of("MetricAlarm")

    def cloud_config(self, template: str) -> str:
        return base64.b64decode(self.the("LaunchTemplate", template)["userData"]).decode()

    def agent(self, template: str) -> dict[str, Any]:
        """The node agent's configuration in the boot data of a launch template."""
        files = {file["path"]: file["content"] for file in self.cloud_init(template)["write_files"]}
        configuration: dict[str, Any] = json.loads(files["/etc/gpu-spot/agent.json"])
        return configuration

    def cloud_init(self, template: str) -> dict[str, Any]:
        """The boot data of a launch template, read as cloud-init reads it."""
        read: dict[str, Any] = yaml.safe_load(self.cloud_config(template))
        return read


@cache
def run(mode: str, stack_file: Path = DEV, stack: str = "dev", again: int = 0) -> Run:
    """Run the program, once for all workers and for all stack files of the same content."""
    asked = f"{mode} {stack} {again}\n".encode() + stack_file.read_bytes()
    known = Path(os.environ[SHARED_VARIABLE], f"{hashlib.sha256(asked).hexdigest()}.json")
    if not known.exists():
        written = known.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(apart(program.declared, mode, stack, stack_file)), "utf-8")
        written.rename(known)
    settings = yaml.safe_load(stack_file.read_text("utf-8"))["config"]
    return Run(stack, **json.loads(known.read_text("utf-8")), settings=settings)


def shipped(stack: str, mode: str = "known", again: int = 0) -> Run:
    """Run one of the environments that ship."""
    return run(mode, ROOT / "stacks" / f"Pulumi.{stack}.yaml", stack, again)


Edit = Mapping[str, Any] | Callable[[dict[str, Any]], None]
"""New values by path, as ``services[0].command``, or a function that changes the configuration."""


def edited_file(edit: Edit, base: str = "dev") -> Path:
    """Return a sample's stack file with an edit."""
    config = dict(load(ROOT, base, None if callable(edit) else edit).values)
    if callable(edit):
        edit(config)
    return file_of(config)


def file_of(config: Mapping[str, Any]) -> Path:
    """Return a stack file of a configuration; equal ones are one file."""
    text = yaml.safe_dump({"config": dict(config)}, sort_keys=False).encode()
    path = Path(os.environ[SHARED_VARIABLE], f"{hashlib.sha256(text).hexdigest()}.yaml")
    if not path.exists():
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(text)
        written.rename(path)
    return path


def edited_stack(edit: Edit, base: str = "dev", mode: str = "known") -> Run:
    """Run the program with an edited stack file of a sample."""
    return run(mode, edited_file(edit, base), base)


def stack_of(config: Mapping[str, Any], mode: str = "known") -> Run:
    """Run the program as stack ``dev`` with a configuration of one's own."""
    return run(mode, file_of(config))


def in_capacity(**values: Any) -> dict[str, Any]:
    """Return an edit of the first service's capacity."""
    return {f"services[0].capacity.{key}": value for key, value in values.items()}


def in_service(**values: Any) -> dict[str, Any]:
    """Return an edit of the first service."""
    return {f"services[0].{key}": value for key, value in values.items()}


def variant(folder: Path, change: Callable[[dict[str, Any]], None], base: Path) -> Path:
    """Write a stack file with ``change`` applied to its configuration."""
    content = yaml.safe_load(base.read_text("utf-8"))
    change(content["config"])
    path = folder / "Pulumi.variant.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    return path


PAGE: Final = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text("utf-8")
HEADINGS: Final = {
    name for line in PAGE.splitlines() if line.startswith("### ") for name in re.findall(r"`([^`]+)`", line)
}
_PLACE: Final = re.compile(r"<\w+>")


def heading(alarm: str) -> str | None:
    """Return the heading of an alarm by its name without the stack's; the longest fixed part wins."""
    fits = [one for one in HEADINGS if re.fullmatch(_PLACE.sub("[a-z0-9-]+", one.replace(".", r"\.")), alarm)]
    return max(fits, key=lambda one: len(_PLACE.sub("", one)), default=None)
