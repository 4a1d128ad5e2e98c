"""The node agent's configuration of a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import DATA_DIR, JOB_USER
from infra.program.agent_config import shared_settings
from infra.schema import Training


@dataclass(frozen=True)
class JobOutputs:
    """Names that AWS assigns: the job table, and the file system of the checkpoints, if there is one."""

    job_table: str
    file_system: str = ""
    access_point: str = ""


def work(
    job: Training,
    stack: str,
    outputs: JobOutputs,
    prepared: agent.Prepared | None = None,
    kms_key_arn: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the node agent's configuration for a job.

    ``prepared`` is the dataset that the data volume is created from; its builder has it as well.
    """
    return {
        "training": _training(job, stack, outputs),
        "volume": _volume(job, prepared, kms_key_arn),
        "efs": _mounts(outputs),
        "prepared": prepared,
    }


def _training(job: Training, stack: str, outputs: JobOutputs) -> agent.Training:
    python = job.python and agent.Python(**shared_settings(agent.Python, job.python))
    return agent.Training(
        **{**shared_settings(agent.Training, job), "python": python},
        experiments=dict(job.matrix or {}) if job.shares_group else {},
        job=job.name,
        job_table=outputs.job_table,
        user=JOB_USER,
        finished_parameter=names.group_parameter(stack, job.name, names.PARAMETER_FINISHED),
    )


def _volume(job: Training, prepared: agent.Prepared | None, kms_key_arn: str | None) -> agent.Volume | None:
    if not job.has_volume:
        return None
    settings = shared_settings(agent.Volume, job)
    if prepared is not None and prepared.group != job.name:
        settings["dataset"] = None  # the snapshot contains the dataset from S3
    return agent.Volume(**settings, size_gib=job.volume_gib, kms_key_arn=kms_key_arn)


def _mounts(outputs: JobOutputs) -> tuple[agent.EfsMount, ...]:
    if not outputs.access_point:
        return ()
    # The parent of the job's directory: several jobs may share an access point.
    return (agent.EfsMount(outputs.file_system, outputs.access_point, f"{DATA_DIR}/checkpoints"),)
