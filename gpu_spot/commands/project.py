"""The Pulumi project that a command works on: where it is, and how it comes into the local cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_spot.preflight.stack import make_given
from infra.schema import Settings
from infra.settings import SettingsError, load_settings
from pulumi_on_moto import AwsClients, Deployment, StackConfig, deploy, load
from pulumi_on_moto.errors import LocalCloudError


def find() -> Path:
    """Return the nearest folder, the current one or above it, that holds ``Pulumi.yaml``."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise LocalCloudError(f"no Pulumi.yaml in {here} or above it")


def of_job(folder: Path, stack: str | None) -> tuple[StackConfig, str]:
    """Return the stack whose file names a folder of this project as a job's repository, and the job's group.

    With ``stack`` that one, else the first by name. Raises ``LocalCloudError`` where there is none.
    """
    from rehearsal.real_job import HOST  # large, and most commands have no use for it

    root = find()
    here = folder.resolve()
    if not here.is_dir() or not here.is_relative_to(root):
        raise LocalCloudError(f"--job is {folder}, allowed: a folder of {root} with a job's code")
    repository = f"{HOST}/{here.relative_to(root).as_posix()}"
    stacks = _stacks(root, stack)
    for config in (load(root, one) for one in stacks):
        if any(job.get("repository") == repository for job in _on_instances(config, "training")):
            return next((config, job.name) for job in settings(config).jobs if job.repository == repository)
    raise LocalCloudError(f"no job's repository on instances is {repository} in {', '.join(stacks)}")


def of_service(name: str, stack: str | None) -> tuple[StackConfig, Path]:
    """Return the stack whose file has a service of that name, and the folder with the code of its workers.

    With ``stack`` that one, else the first by name. Raises ``LocalCloudError`` where one of both is missing.
    """
    root = find()
    code = root / "examples" / f"{name}-worker"
    if not code.is_dir():
        there = ", ".join(sorted(one.name.removesuffix("-worker") for one in root.glob("examples/*-worker")))
        raise LocalCloudError(f"--service is {name}, allowed: {there or f'none, there is no {code}'}")
    for config in (load(root, one) for one in _stacks(root, stack)):
        if any(one.get("name") == name for one in _on_instances(config, "services")):
            return config, code
    raise LocalCloudError(f"no service on instances is {name} in {', '.join(_stacks(root, stack))}")


def _on_instances(config: StackConfig, key: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list of a stack file that do not run on Kubernetes; nothing is judged here."""
    for one in config.values.get(f"{config.project}:{key}") or ():
        if isinstance(one, dict) and one.get("runsOn") != "kubernetes":
            yield one


def _stacks(root: Path, stack: str | None) -> list[str]:
    return [stack] if stack else sorted(path.name.split(".")[1] for path in root.glob("Pulumi.*.yaml"))


def deployed(clients: AwsClients, config: StackConfig) -> Deployment:
    """Deploy a stack into the local cloud; what its file says is there is made before.

    Raises ``LocalCloudError``, for wrong settings too.
    """
    make_given(settings(config), clients)
    return deploy(clients, config)


def settings(config: StackConfig) -> Settings:
    """Return what a stack file says; raise ``LocalCloudError`` for what is wrong in it."""
    try:
        return load_settings(config.values)
    except SettingsError as error:
        raise LocalCloudError(str(error)) from None
