"""Environment variables of a job's command (docs/contract.md), independent of where it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contracts.agent.names import JOB_HOME, JOB_TMP, SCRATCH_DIR
from contracts.limits import NOTICE_SECONDS
from userdata.agent.work import worker_report_file
from userdata.agent.work.container import scratch_variables
from userdata.agent.work.process import GIVE_BACK_SECONDS

if TYPE_CHECKING:
    from userdata.agent.machine.host import Host

LOCAL_VARIABLE: Final = "GPU_SPOT_LOCAL_CHECKPOINTS"
NODES_VARIABLE: Final = "SPOT_TRAINING_NODES"
NODE_VARIABLE: Final = "SPOT_TRAINING_NODE"
"""Read by ``spot_training.torch.init()``: the least and the most nodes, ``2:4``, and this node's name."""
LAUNCHER_SECONDS: Final = int(NOTICE_SECONDS - GIVE_BACK_SECONDS)
"""Time that a launcher gives its ranks to save: all that a Spot notice leaves.

torchrun of PyTorch 2.12 and later reads it (pytorch/pytorch#172596); earlier ones kill after 30 s. It holds
for a forwarded SIGTERM; ranks that remain after a failed one have 30 s (pytorch/pytorch#192815).
"""


def local_checkpoints() -> Path:
    """Return the directory for checkpoints on an instance store; each training has its own below it."""
    return SCRATCH_DIR / "checkpoints"


def local_variables(host: Host) -> dict[str, str]:
    """Return the variable of `local_checkpoints`; none if scratch space is on the root disk.

    Checkpoints could fill that disk, which the machine needs.
    """
    if host.mounted(SCRATCH_DIR) is None:
        return {}
    return {LOCAL_VARIABLE: str(local_checkpoints())}


def done_file(checkpoints: Path, revision: str, retries: int = 0) -> Path:
    """Return the file with which the command reports that the job is done.

    A run that an operator retries has another file, so a file of the failed run does not count.
    """
    again = f"-{retries}" if retries else ""
    return checkpoints / f".done-{revision}{again}"


def fixed_variables(
    job: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    data: Path,
    directory: Path,
    checkpoints: Path,
    artifacts: Path,
    done: Path,
) -> dict[str, str]:
    """Return the variables of a job's command that are the same on every machine and in every run.

    Args:
        job: name of the job.
        command: the job's command.
        environment: the job's ``environment`` in the stack file.
        data: parent directory of the datasets.
        directory: the agent's runtime directory.
        checkpoints: directory of the job's checkpoints.
        artifacts: directory of the job's artifacts.
        done: see `done_file`.
    """
    return {
        "HOME": str(JOB_HOME),
        **scratch_variables(),
        "TMPDIR": str(JOB_TMP),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",  # the order of a set is the same at each start
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(LAUNCHER_SECONDS),
        **environment,
        "GPU_SPOT_SCRATCH": str(SCRATCH_DIR),
        "GPU_SPOT_JOB": job,
        "GPU_SPOT_COMMAND": hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()[:16],
        "GPU_SPOT_DATASETS": str(data / "datasets"),
        "GPU_SPOT_CHECKPOINTS": str(checkpoints),
        "GPU_SPOT_ARTIFACTS": str(artifacts),
        "GPU_SPOT_NOTICE": str(directory / "notice.json"),
        "GPU_SPOT_DONE": str(done),
        "GPU_SPOT_TELL": str(worker_report_file.report_path(directory, 0)),
    }
