"""An uninterrupted run of a job's command: its results and duration."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts.agent.config import Training
from contracts.agent.names import COST_PAGE
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real import commands as real


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Result of an uninterrupted run: SHA-256 of each artifact, and seconds of the steps."""

    results: Mapping[str, str]
    seconds: float


def undisturbed(
    training: Training, source: Path, folder: Path, environment: Mapping[str, str]
) -> Undisturbed:
    """Run the command once in ``source`` and wait for its end; its files are written below ``folder``.

    ``environment`` has its other variables.
    Raises ``LocalCloudError`` with its last line of output if it fails.
    """
    folders = {"CHECKPOINTS": "checkpoints", "ARTIFACTS": "artifacts", "SCRATCH": "scratch"}
    files = {"DONE": "done", "TELL": "tell", "NOTICE": "notice"}
    for name in folders.values():
        (folder / name).mkdir(parents=True)
    places_here = {f"GPU_SPOT_{name}": str(folder / path) for name, path in (folders | files).items()}
    output_file, began = folder / "output", time.perf_counter()
    first = None
    with output_file.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            list(training.command),
            cwd=source,
            env={**environment, **places_here},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if first is None and real.begins_at(output_file, folder / "tell") is not None:
                first = time.perf_counter()
            time.sleep(0.02)
    finally:
        real.kill_all(process.pid)
        process.wait()
    if process.returncode:
        last = output_file.read_text(errors="replace").splitlines()[-1:] or ["no output"]
        raise LocalCloudError(f"{' '.join(training.command)}: exit {process.returncode}: {last[0]}")
    return Undisturbed(digests(folder / "artifacts"), time.perf_counter() - (first or began))


def digests(folder: Path) -> Mapping[str, str]:
    """Return the SHA-256 of each result below a folder, by relative path, without the agent's page."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != COST_PAGE
    }
