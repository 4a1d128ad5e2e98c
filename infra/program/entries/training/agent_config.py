"""What the node agent must know of a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import DATA_DIR, JOB_USER
from infra.program.agent_config import same_names
from infra.schema import Training


@dataclass(frozen=True)
class KnownJob:
    """What AWS names: the jobs' table, and what checkpoints lie on, if that is not the volume."""

    job_table: str
    file_system: str = ""
    access_point: str = ""


def work(
    job: Training,
    stack: str,
    known: KnownJob,
    prepared: agent.Prepared | None = None,
    kms_key_arn: str | None = None,
) -> dict[str, Any]:
    """Return a job's fields of the agent's configuration.

    ``prepared`` names what the volume is made from; the group that makes it is given it, too.
    """
    return {
        "training": _training(job, stack, known),
        "volume": _volume(job, prepared, kms_key_arn),
        "efs": _mounts(known),
        "prepared": prepared,
    }


def _training(job: Training, stack: str, known: KnownJob) -> agent.Training:
    python = job.python and agent.Python(**same_names(agent.Python, job.python))
    return agent.Training(
        **{**same_names(agent.Training, job), "python": python},
        experiments=dict(job.matrix or {}) if job.shares_group else {},
        job=job.name,
        job_table=known.job_table,
        user=JOB_USER,
        finished_parameter=names.group_parameter(stack, job.name, names.PARAMETER_FINISHED),
    )


def _volume(job: Training, prepared: agent.Prepared | None, kms_key_arn: str | None) -> agent.Volume | None:
    if not job.has_volume:
        return None
    same = same_names(agent.Volume, job)
    if prepared is not None and prepared.group != job.name:
        same["dataset"] = None  # what S3 has of it is in the snapshot
    return agent.Volume(**same, size_gib=job.volume_gib, kms_key_arn=kms_key_arn)


def _mounts(known: KnownJob) -> tuple[agent.EfsMount, ...]:
    if not known.access_point:
        return ()
    # Above the job's own folder: several jobs may share an access point.
    return (agent.EfsMount(known.file_system, known.access_point, f"{DATA_DIR}/checkpoints"),)
