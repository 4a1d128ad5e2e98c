"""Selection of the stack for ``gpu-spot demo`` by a job's code or a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gpu_spot.commands import project
from gpu_spot.preflight.stack import settings_of
from pulumi_declared.errors import UserError
from pulumi_declared.stackfile import StackConfig, load
from rehearsal.machines.real.repository import commit_of
from rehearsal.real_job import HOST

SCRIPT: Final = "train.py"


def of_job(folder: Path, stack: str | None) -> tuple[StackConfig, str]:
    """Return the stack with a job whose repository is a folder of this project, and the job's group.

    Without ``stack`` that is the first by name. In a ``stack`` without such a job its first job on instances
    runs the folder's ``train.py`` in place of its own script.
    Raises ``UserError`` if there is none.
    """
    root = project.find()
    code = folder.resolve()
    if not code.is_dir() or not code.is_relative_to(root):
        raise UserError(f"--job is {folder}, allowed: a folder of {root} with a job's code")
    repository = f"{HOST}/{code.relative_to(root).as_posix()}"
    stacks = _stacks(root, stack)
    for config in (load(root, name) for name in stacks):
        if any(job.get("repository") == repository for job in _on_instances(config, "training")):
            return next(
                (config, job.name) for job in settings_of(config).jobs if job.repository == repository
            )
    if stack is not None and (code / SCRIPT).is_file():
        config = load(root, stack)
        entries = list(config.values.get(f"{config.project}:training") or ())
        if job := next(_on_instances(config, "training"), None):
            replaced: dict[str, Any] = {
                "repository": repository,
                "revision": commit_of(code),
                "command": ["python3", SCRIPT],
                "python": None,
                "environment": {},
            }
            path = f"training[{entries.index(job)}]"
            overrides = {f"{path}.{key}": value for key, value in replaced.items()}
            return load(root, stack, overrides), str(job["name"])
    raise UserError(
        f"no training job on instances has repository {repository}; stacks: {', '.join(stacks)}; "
        f"allowed with --stack: a folder with {SCRIPT}"
    )


def of_service(name: str, stack: str | None) -> tuple[StackConfig, Path]:
    """Return the stack with a service of that name, and the folder with the code of its workers.

    Only ``stack`` if given, else the first by name. Raises ``UserError`` if stack or folder is missing.
    """
    root = project.find()
    code = root / "examples" / f"{name}-service"
    if not code.is_dir():
        services = ", ".join(
            sorted(path.name.removesuffix("-service") for path in root.glob("examples/*-service"))
        )
        raise UserError(f"--service is {name}, allowed: {services or f'none, there is no {code}'}")
    for config in (load(root, stack_name) for stack_name in _stacks(root, stack)):
        if any(instance.get("name") == name for instance in _on_instances(config, "services")):
            return config, code
    raise UserError(f"no service {name} on instances; stacks: {', '.join(_stacks(root, stack))}")


def _on_instances(config: StackConfig, key: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list of a stack file that run on instances; they are not validated here."""
    for entry in config.values.get(f"{config.project}:{key}") or ():
        if isinstance(entry, dict) and entry.get("runsOn") != "kubernetes":
            yield entry


def _stacks(root: Path, stack: str | None) -> list[str]:
    return [stack] if stack else sorted(path.name.split(".")[1] for path in root.glob("Pulumi.*.yaml"))
