"""What a job's command finds in its environment (docs/contract.md), wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contracts.agent.names import JOB_HOME, JOB_TMP, SCRATCH_DIR
from userdata.agent.work import worker_report_file as tell


def done_file(checkpoints: Path, revision: str, retries: int = 0) -> Path:
    """Return the file by which the command says that nothing is left to do.

    A run that people let begin again has another one: what the failed run left says nothing of it.
    """
    again = f"-{retries}" if retries else ""
    return checkpoints / f".done-{revision}{again}"


def of_job(
    job: str,
    own: Mapping[str, str],
    data: Path,
    directory: Path,
    checkpoints: Path,
    artifacts: Path,
    done: Path,
) -> dict[str, str]:
    """Return the variables of a job's command that no machine and no run of it changes.

    ``own`` is the stack file's ``environment``, ``data`` where datasets lie, ``directory`` the agent's files.
    """
    return {
        "HOME": str(JOB_HOME),
        "XDG_CACHE_HOME": str(JOB_HOME / ".cache"),
        "TMPDIR": str(JOB_TMP),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        **own,
        "GPU_SPOT_JOB": job,
        "GPU_SPOT_DATASETS": str(data / "datasets"),
        "GPU_SPOT_CHECKPOINTS": str(checkpoints),
        "GPU_SPOT_ARTIFACTS": str(artifacts),
        "GPU_SPOT_SCRATCH": str(SCRATCH_DIR),
        "GPU_SPOT_NOTICE": str(directory / "notice.json"),
        "GPU_SPOT_DONE": str(done),
        "GPU_SPOT_TELL": str(tell.tell_file(directory, 0)),
    }
