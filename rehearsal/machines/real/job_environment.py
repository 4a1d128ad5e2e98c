"""The Python environment of a real job command, built once by the agent's own code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from contracts.agent.config import Training
from pulumi_on_moto.errors import LocalCloudError
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work.training.job_python import JobPython


def programs_of(python: Path) -> Path:
    """Return the bin folder of a virtual environment, given as its folder or interpreter.

    Raises ``LocalCloudError`` for anything else.
    """
    # Not resolved: the interpreter of an environment is a link out of it.
    folder = (python.parent if python.is_file() else python / "bin").absolute()
    if not (folder / "python3").exists():
        raise LocalCloudError(
            f"--python is {python}, allowed: a virtual environment or the python in its bin folder"
        )
    return folder


def built(training: Training, code: Path, cache: Path) -> Path:
    """Build the job's ``python`` environment unless ``cache`` has it; return its bin folder.

    uv builds it from the package index, as on an instance, for the current Python version.
    Raises ``LocalCloudError`` if that fails.
    """
    assert training.python is not None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    job = replace(training, python=replace(training.python, version=version))
    folders = (cache / "environments", cache / "tools", cache / "downloads")
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    job_python = JobPython(cast("Host", _LocalRunner()), job, code, *folders)
    try:
        job_python.prepare()
    except AgentError as error:
        raise LocalCloudError(
            f"cannot build the job's Python environment: {error}; use --python for an existing one"
        ) from None
    return Path(job_python.start([], {}, code).environment["VIRTUAL_ENV"]) / "bin"


class _LocalRunner:
    """Runs commands of the job's user as the current user on this machine."""

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """See ``Host``. Raises ``AgentError``."""
        words = [word for word in argv if not word.startswith("--owner=")]
        if words[0] == "runuser":
            words = words[words.index("--") + 1 :]
        if words[0] == "python3":
            words[0] = sys.executable
        # uv does not read pip's configuration.
        index = os.environ.get("PIP_INDEX_URL")
        around = {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {})}
        done = subprocess.run(  # noqa: S603
            words,
            input=stdin,
            env={**around, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no output"]
            raise AgentError(f"{Path(words[0]).name}: exit {done.returncode}: {lines[-1]}")
        return done.stdout
