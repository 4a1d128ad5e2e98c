"""What the program tells the node agent: the agent's own configuration, filled from a stack file's entry."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import DATA_DIR, DATASET_DEVICES, JOB_USER
from infra.schema import Service, SharedHost, Training
from infra.schema.base import Model
from infra.schema.services.sqs_queue import SqsQueue

_NOTHING: Final = ("sleep", "infinity")
"""The worker of a service without image and command."""


@dataclass(frozen=True)
class InstancePlace:
    """Where an instance stands: its stack, its side, what that side's groups and logs are called, its key."""

    region: str
    stack: str
    side: agent.GroupSide
    hooks: agent.Hooks | None
    log_group: str
    kms_key_arn: str | None = None


@dataclass(frozen=True)
class Known:
    """What AWS names, known once it is made; the jobs' table, and what checkpoints lie on, for jobs only.

    ``queue_secret`` is the name of the secret of a service's queue; one of SQS has ``queue_url``, where it
    is in the words of ``spot_work``, and ``queue_name``. ``tenants_bucket`` has the list of a
    shared host's tenants.
    """

    registry_table: str
    job_table: str = ""
    file_system: str = ""
    access_point: str = ""
    queue_secret: str = ""
    queue_url: str = ""
    queue_name: str = ""
    tenants_bucket: str = ""


def build(
    entry: Service | Training | SharedHost,
    place: InstancePlace,
    known: Known,
    prepared: agent.Prepared | None = None,
) -> agent.Config:
    """Return the configuration of the instances of an entry of a stack file.

    ``prepared`` names what the volume is made from; those whose group makes it are told so, too.
    """
    config = _config(entry, place, known)
    if prepared is None:
        return config
    told = dataclasses.replace(config, prepared=prepared)
    if told.prepares or told.volume is None:
        return told
    # What S3 has of it is in the snapshot.
    return dataclasses.replace(told, volume=dataclasses.replace(told.volume, dataset=None))


def on_premises(service: Service, region: str, stack: str, known: Known) -> agent.Config:
    """Return the configuration of hosts that are no instances."""
    place = InstancePlace(region, stack, "primary", None, agent.Metrics.log_group)
    return dataclasses.replace(build(service, place, known), on_premises=True)


def queue(service: Service, known: Known) -> agent.Queue | None:
    """Return the queue that a service's workers read; None without one."""
    if service.queue is None:
        return None
    if isinstance(service.queue, SqsQueue):
        return agent.Queue(name=known.queue_name, url=known.queue_url)
    same = {**_same(agent.Queue, service.queue), "name": service.queue.name or service.name}
    return agent.Queue(**same, secret=known.queue_secret)


def _config(entry: Service | Training | SharedHost, place: InstancePlace, known: Known) -> agent.Config:
    return agent.Config(
        region=place.region,
        stack=place.stack,
        group=entry.name,
        side=place.side,
        registry_table=known.registry_table,
        hooks=place.hooks,
        datasets=tuple(
            agent.Dataset(**_same(agent.Dataset, dataset), device=device)
            for dataset, device in zip(entry.datasets, DATASET_DEVICES, strict=False)
        ),
        metrics=agent.Metrics(log_group=place.log_group),
        nvidia=entry.capacity.is_nvidia,
        **_work(entry, place, known),
    )


def _work(entry: Service | Training | SharedHost, place: InstancePlace, known: Known) -> dict[str, Any]:
    if isinstance(entry, SharedHost):
        shared = agent.SharedHost(known.tenants_bucket, known.job_table, place.kms_key_arn)
        return {"shared_host": shared, "drain_seconds": entry.drain_seconds}
    if isinstance(entry, Service):
        return {"service": _service(entry, known), "drain_seconds": entry.drain_seconds}
    volume = None
    if entry.has_volume:
        volume = agent.Volume(
            **_same(agent.Volume, entry), size_gib=entry.volume_gib, kms_key_arn=place.kms_key_arn
        )
    return {"training": _training(entry, place, known), "volume": volume, "efs": _mounts(entry, known)}


def _service(service: Service, known: Known) -> agent.Service:
    user = JOB_USER if service.command and service.image is None else ""
    if service.image is None and not service.command:
        service = service.model_copy(update={"command": _NOTHING})
    return agent.Service(
        **{**_same(agent.Service, service), "queue": queue(service, known)},
        user=user,
        gpus=0 if service.capacity.is_nvidia else 1,
    )


def _training(training: Training, place: InstancePlace, known: Known) -> agent.Training:
    python = training.python and agent.Python(**_same(agent.Python, training.python))
    return agent.Training(
        **{**_same(agent.Training, training), "python": python},
        experiments=dict(training.matrix or {}) if training.shares_group else {},
        job=training.name,
        job_table=known.job_table,
        user=JOB_USER,
        finished_parameter=names.group_parameter(place.stack, training.name, names.PARAMETER_FINISHED),
    )


def _mounts(training: Training, known: Known) -> tuple[agent.EfsMount, ...]:
    if not known.access_point:
        return ()
    # Above the job's own folder: several jobs may share an access point.
    return (agent.EfsMount(known.file_system, known.access_point, f"{DATA_DIR}/checkpoints"),)


def _same(part: type[Any], model: Model) -> dict[str, Any]:
    """Return the settings of ``model`` that a part of the agent's configuration has by the same name."""
    shared = {field.name for field in dataclasses.fields(part)} & type(model).model_fields.keys()
    return {name: getattr(model, name) for name in shared}
