"""The node agent's configuration of a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import DATA_DIR, JOB_USER
from infra.catalogue import price_tables
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


def _training(job: Training, stack: str, region: str, outputs: JobOutputs) -> agent.Training:
    return agent.Training(
        job=job.name,
        job_table=outputs.job_table,
        repository=job.repository,
        revision=job.revision,
        command=job.command,
        user=JOB_USER,
        finished_parameter=names.group_parameter(stack, job.name, names.PARAMETER_FINISHED),
        environment=job.environment,
        secrets=job.secrets,
        uses_aws=job.uses_aws,
        shm_gib=job.shm_gib,
        max_restarts=job.max_restarts,
        stalled_after_minutes=job.stalled_after_minutes,
        repository_secret=job.repository_secret,
        submodules=job.submodules,
        image=job.image,
        python=agent.Python(job.python.version, job.python.requirements) if job.python else None,
        artifacts=job.artifacts,
        experiments=dict(job.matrix or {}) if job.shares_group else {},
        nodes=job.nodes.setting,
        prices=_prices(job, region),
        scheduled=_scheduled(job, stack),
    )


def _scheduled(job: Training, stack: str) -> agent.ScheduledRun | None:
    if job.schedule is None:
        return None
    parameter = names.group_parameter(stack, job.name, names.PARAMETER_RUN)
    return agent.ScheduledRun(parameter, job.schedule.keep_runs or 0)


def _prices(job: Training, region: str) -> agent.JobPrices:
    """Return the list prices that the job's instances need, without those that no table has.

    Writing to EFS in a region without its price counts as in the dearest region.
    """
    types = (*job.capacity.types, *job.fallback_capacity.types)
    write = price_tables.find(price_tables.EFS_WRITE, region)
    return agent.JobPrices(
        on_demand={kind: price.usd for kind in types if (price := price_tables.find(kind, region))},
        efs_write=price_tables.highest(price_tables.EFS_WRITE) if write is None else write.usd,
        efs_write_is_assumed=write is None,
    )


def _volume(job: Training, prepared: agent.Prepared | None, kms_key_arn: str | None) -> agent.Volume | None:
    if not job.has_volume:
        return None
    is_in_snapshot = prepared is not None and prepared.group != job.name
    return agent.Volume(
        size_gib=job.volume_gib,
        throughput_mib=job.throughput_mib,
        dataset=None if is_in_snapshot else job.dataset,
        initialization_rate_mib=job.initialization_rate_mib,
        snapshot_every_minutes=job.snapshot_every_minutes,
        kms_key_arn=kms_key_arn,
    )


def _mounts(outputs: JobOutputs) -> tuple[agent.EfsMount, ...]:
    if not outputs.access_point:
        return ()
    # The parent of the job's directory: several jobs may share an access point.
    return (agent.EfsMount(outputs.file_system, outputs.access_point, f"{DATA_DIR}/checkpoints"),)
