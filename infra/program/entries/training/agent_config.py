"""The node agent's configuration of a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import DATA_DIR, JOB_USER
from contracts.agent.study import Study
from infra.catalogue import price_tables
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
    region: str,
    outputs: JobOutputs,
    prepared: agent.Prepared | None = None,
    kms_key_arn: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the node agent's configuration for a job.

    ``prepared`` is the dataset that the data volume is created from; its builder has it as well.
    """
    return {
        "training": _training(job, stack, region, outputs),
        "volume": _volume(job, prepared, kms_key_arn),
        "efs": _mounts(outputs),
        "prepared": prepared,
    }


def study_of(job: Training) -> Study | None:
    """Return a job's study as the agent reads it; None without one."""
    return None if job.study is None else job.study.settings(job.capacity.target)


def _training(job: Training, stack: str, region: str, outputs: JobOutputs) -> agent.Training:
    python = job.python and agent.Python(**shared_settings(agent.Python, job.python))
    return agent.Training(
        **{
            **shared_settings(agent.Training, job),
            "python": python,
            "study": study_of(job),
            "nodes": job.nodes.setting,
        },
        experiments=dict(job.matrix or {}) if job.shares_group else {},
        job=job.name,
        job_table=outputs.job_table,
        user=JOB_USER,
        finished_parameter=names.group_parameter(stack, job.name, names.PARAMETER_FINISHED),
        prices=_prices(job, region),
    )


def _prices(job: Training, region: str) -> agent.JobPrices:
    """Return the list prices that the job's instances need, without those that no table has.

    Writing to EFS in a region without its price counts as in the dearest region.
    """
    types = (*job.capacity.types, *job.fallback_capacity.types)
    listed = {kind: price for kind in types if (price := price_tables.find(kind, region)) is not None}
    write = price_tables.find(price_tables.EFS_WRITE, region)
    return agent.JobPrices(
        on_demand={kind: price.usd for kind, price in listed.items()},
        efs_write=price_tables.highest(price_tables.EFS_WRITE) if write is None else write.usd,
        efs_write_is_assumed=write is None,
        source="; ".join(sorted({f"{price.source}, {price.date}" for price in listed.values()})),
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
