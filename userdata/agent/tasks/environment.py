"""The environment of this machine's job, by its configuration."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from contracts.agent.names import JOB_HOME, JOB_TMP, SCRATCH_DIR
from userdata.agent.machine.errors import ConfigError
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node
from userdata.agent.work.training.environment import HostEnvironment, JobEnvironment

_TOOLS: Final = Path("/var/lib/gpu-spot/uv")


def job_environment(node: Node, code: Path) -> JobEnvironment:
    """Return the environment of the job's command; ``code`` is its checkout."""
    training = node.config.training
    if training is None:
        raise ConfigError("training is missing; this instance has none")
    if training.image:
        return _container(node, code)
    if training.python:
        from userdata.agent.work.training.job_python import JobPython

        return JobPython(node.host, training, code, job.environments(node), _TOOLS, SCRATCH_DIR)
    return HostEnvironment(training.user)


def _container(node: Node, code: Path) -> JobEnvironment:
    from userdata.agent.tasks.service import ecr_password
    from userdata.agent.work import worker_report_file
    from userdata.agent.work.service.slots import gpu_count
    from userdata.agent.work.training.job_container import JobContainer, Mounts

    training = node.config.training
    assert training is not None
    assert training.image is not None
    report_directory = worker_report_file.worker_directory(node.directory, 0)
    mounts = Mounts(
        writable=(code, node.data, JOB_HOME, JOB_TMP, SCRATCH_DIR, report_directory),
        read_only=(node.directory, *(Path(dataset.path) for dataset in node.config.datasets)),
    )
    return JobContainer(
        node.host,
        training.job,
        training.image,
        training.user,
        mounts,
        node.directory,
        partial(ecr_password, node),
        gpu_count if node.config.nvidia else None,
        training.environment,
        uses_aws=training.uses_aws,
        shm_gib=training.shm_gib,
    )
