"""One entry of a stack file: who its instances are, what starts them, what holds them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pulumi

from contracts import names
from contracts.agent import config as agent
from contracts.agent.config import GroupSide
from contracts.agent.experiments import run_of
from contracts.agent.names import TAG_JOB
from infra import agent_config
from infra.agent_config import Known
from infra.components.capacity.agent_store import AgentStore
from infra.components.capacity.capacity_group import (
    DRAIN_HOOK,
    DRAIN_HOOK_SECONDS,
    LAUNCH_HOOK,
    CapacityGroup,
    CapacityGroupArgs,
)
from infra.components.capacity.launch_template import (
    Launchable,
    LaunchTemplate,
    LaunchTemplateArgs,
    looked_up_at_launch,
    looked_up_at_preview,
)
from infra.components.control.state import State
from infra.components.identity.hosts import HostIdentity, HostIdentityArgs
from infra.components.identity.identity import InstanceIdentity, InstanceIdentityArgs
from infra.components.monitoring.telemetry import Telemetry, TelemetryArgs
from infra.components.network.network import Network
from infra.components.queue.sqs import Sqs
from infra.components.storage.storage import Storage
from infra.components.tenants.tenancy import Tenancy
from infra.iam.instance_statements import InstanceAccess
from infra.iam.queue_statements import SqsArns
from infra.schema import Builder, Capacity, OnPremises, Service, SharedHost, Training
from infra.schema.jobs.builder import dataset_of, group_of
from infra.schema.jobs.training import ON_THE_VOLUME
from infra.schema.reservation import CapacityBlock
from infra.schema.services.sqs_queue import SqsQueue
from infra.scope import Scope
from userdata.agent.aws.permissions import Need

_ECR: Final = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^@:]+)")


@dataclass(frozen=True)
class Surroundings:
    """What the stack's workloads share."""

    scope: Scope
    network: Network
    state: State
    storage: Storage
    store: AgentStore
    log_retention_days: int
    queues: Mapping[str, pulumi.Input[str]]
    """Names of the secrets of queues of RabbitMQ, by service."""
    sqs: Mapping[str, Sqs]
    """The queues of SQS, by service."""


@dataclass(frozen=True)
class Workload:
    """What a service, a training job and a shared host have in common.

    ``known`` are outputs that the agent's configuration needs, by the fields of ``agent_config.Known``; the
    others as in ``CapacityGroupArgs`` and ``InstanceAccess``. ``tenancy`` is a shared host's.
    """

    entry: Service | Training | SharedHost
    slots: Mapping[str, int]
    drain_seconds: int = 0
    run: str | None = None
    dataset: str = ""
    secret: str = ""
    artifacts: str = ""
    queue: pulumi.Input[str] | None = None
    sqs: SqsArns | None = None
    known: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    images: tuple[pulumi.Input[str], ...] = ()
    access_points: tuple[pulumi.Input[str], ...] = ()
    instance_tags: Mapping[str, str] = field(default_factory=dict)
    block: CapacityBlock | None = None
    prepared: agent.Prepared | None = None
    deadline: float = 0.0
    budget: float = 0.0
    on_premises: int = 0
    scales: bool = False
    tenancy: Tenancy | None = None

    @property
    def name(self) -> str:
        """The group's name."""
        return self.entry.name


def needs(entry: Service | Training | SharedHost, *, prepares: bool = False) -> frozenset[Need]:
    """Return what an entry's instances are there for; with ``prepares`` they make a dataset."""
    found: set[Need] = set()
    if isinstance(entry, SharedHost):
        found.add("tenants")
    elif isinstance(entry, Training):
        found |= {"run", "volume"} if entry.has_volume else {"run"}
        if entry.shares_group:
            found.add("experiments")
        if prepares:
            found.add("prepare")
        if entry.prepare is not None:
            found.add("prepared")
        elif entry.dataset:
            found.add("dataset")
        if entry.artifacts:
            found.add("artifacts")
        if entry.repository_secret:
            found.add("secret")
    else:
        found |= {"work", "release"}
        if entry.queue is not None:
            found.add("sqs" if isinstance(entry.queue, SqsQueue) else "queue")
    if any(map(_ECR.match, _images_of(entry))):
        found.add("image")
    if not isinstance(entry, SharedHost) and entry.image and entry.capacity.fallback.enabled:
        found.add("pull")
    if entry.capacity.kind == "mixed-asg" or entry.capacity.fallback.enabled:
        found.add("hooks")
    if entry.datasets:
        found.add("attached")
    return frozenset(found)


def of_service(service: Service, around: Surroundings) -> Workload:
    """Return a service as a workload."""
    return Workload(
        entry=service,
        slots=service.slots,
        drain_seconds=service.drain_seconds,
        queue=around.queues.get(service.name),
        sqs=_sqs_arns(service, around),
        known=_of_queue(service, around),
        images=_images(service, around),
        on_premises=service.workers_per_slot if service.on_premises is not None else 0,
        scales=service.scaling is not None and not service.scaling.dry_run,
    )


def _sqs_arns(service: Service, around: Surroundings) -> SqsArns | None:
    sqs = around.sqs.get(service.name)
    return None if sqs is None else sqs.arns


def _of_queue(service: Service, around: Surroundings) -> dict[str, pulumi.Input[str]]:
    """Return what the agent must know of the service's queue."""
    known: dict[str, pulumi.Input[str]] = {}
    if (secret := around.queues.get(service.name)) is not None:
        known["queue_secret"] = secret
    if (sqs := around.sqs.get(service.name)) is not None:
        known |= {"queue_url": sqs.url, "queue_name": sqs.name}
    return known


def of_training(training: Training, around: Surroundings) -> Workload:
    """Return a training job as a workload."""
    known: dict[str, pulumi.Input[str]] = {"job_table": around.state.jobs.name}
    points = []
    files = around.storage.file_system
    if training.checkpoints != ON_THE_VOLUME and files is not None:
        points.append(files.access_point_arns[training.checkpoints])
        known["file_system"] = files.id
        known["access_point"] = files.access_point_ids[training.checkpoints]
    return Workload(
        entry=training,
        slots=dict.fromkeys(training.capacity.types, 1),
        run=run_of(training.revision, training.matrix or {}) if training.shares_group else training.revision,
        dataset="" if training.prepare else training.dataset or "",
        prepared=_prepared(dataset_of(training), group_of(training), around.scope)
        if training.prepare
        else None,
        secret=training.repository_secret or "",
        artifacts=training.artifacts or "",
        known=known,
        images=_images(training, around),
        access_points=tuple(points),
        instance_tags={TAG_JOB: training.name},
        block=training.capacity_block,
        deadline=training.deadline_at,
        budget=training.budget or 0.0,
    )


def _images_of(entry: Service | Training | SharedHost) -> tuple[str, ...]:
    if isinstance(entry, SharedHost):
        return entry.images
    return (entry.image,) if entry.image else ()


def _images(entry: Service | Training | SharedHost, around: Surroundings) -> tuple[pulumi.Input[str], ...]:
    # An image from elsewhere needs no permission of ours; several may be of one repository.
    places = {place.groups() for image in _images_of(entry) if (place := _ECR.match(image))}
    return tuple(around.scope.arn_of_image(*place) for place in sorted(places))


def of_host(host: SharedHost, tenancy: Tenancy, around: Surroundings) -> Workload:
    """Return a shared host as a workload: to the controller one worker, ready when all tenants are served."""
    return Workload(
        entry=host,
        slots=dict.fromkeys(host.capacity.types, 1),
        drain_seconds=host.drain_seconds,
        known={"job_table": around.state.jobs.name, "tenants_bucket": around.store.bucket},
        images=_images(host, around),
        tenancy=tenancy,
    )


def of_builder(builder: Builder, around: Surroundings) -> Workload:
    """Return who prepares a dataset as a workload: a job whose run is this version of it."""
    job = of_training(builder.entry, around)
    return dataclasses.replace(
        job,
        run=f"{job.run}/{builder.dataset}",
        prepared=_prepared(builder.dataset, builder.group, around.scope),
    )


def _prepared(dataset: str, group: str, scope: Scope) -> agent.Prepared:
    parameter = names.group_parameter(scope.stack, group, names.PARAMETER_PREPARED)
    return agent.Prepared(dataset, group, parameter)


def capacity_group(work: Workload, around: Surroundings) -> CapacityGroup:
    """Declare a workload's capacity group and all that its instances need."""
    scope, entry, capacity = around.scope, work.entry, work.entry.capacity
    telemetry = Telemetry(
        scope.name(work.name, "telemetry"),
        TelemetryArgs(scope, work.name, around.log_retention_days, capacity.is_nvidia),
        scope.below,
    )
    identity = InstanceIdentity(
        scope.name(work.name, "instance"),
        InstanceIdentityArgs(scope, work.name, _access(work, around, telemetry)),
        scope.below,
    )

    def launchables(side: GroupSide) -> list[Launchable]:
        made: list[Launchable] = []
        image_id = _image_lookup(scope, capacity, side)
        bought = work.block if side == "fallback" else None
        started = entry.fallback_capacity if side == "fallback" else capacity
        for image, types in started.images.items():
            # The first keeps the plain name: a second image, for some family, replaces no template.
            family = [types[0].partition(".")[0]] if made else []
            template = LaunchTemplate(
                scope.name(work.name, side, *family),
                LaunchTemplateArgs(
                    scope=scope,
                    group=work.name,
                    side=side,
                    image_id=image_id(image),
                    root_volume_gib=capacity.root_volume_gib,
                    profile_arn=identity.profile_arn,
                    security_group_ids=[
                        *around.network.security_group_ids,
                        *([work.tenancy.security_group_id] if work.tenancy else []),
                    ],
                    store=around.store,
                    cloudwatch_parameter=telemetry.parameter_name,
                    agent=_agent(work, around, side, telemetry),
                    datasets=entry.datasets,
                    instance_tags=work.instance_tags,
                    block=bought,
                ),
                scope.below,
            )
            made.append(Launchable(template, types))
        return made

    return CapacityGroup(
        scope.name(work.name),
        CapacityGroupArgs(
            scope=scope,
            group=work.name,
            capacity=capacity,
            primary=launchables("primary"),
            fallback=launchables("fallback") if capacity.fallback.enabled else [],
            subnet_ids=around.network.subnet_ids,
            instance_role_arn=identity.role_arn,
            slots=work.slots,
            drain_seconds=work.drain_seconds,
            run=work.run,
            block=work.block,
            follows_volume=work.tenancy is not None or (isinstance(entry, Training) and entry.has_volume),
            # Volumes and leases are with one instance at a time.
            break_before_make=work.tenancy is not None
            or (isinstance(entry, Training) and not entry.shares_group),
            dataset=work.prepared.dataset if work.prepared else "",
            prepared_by=work.prepared.group if work.prepared else "",
            deadline=work.deadline,
            budget=work.budget,
            on_premises=work.on_premises,
            scales=work.scales,
            # Warm instances start with the group: without a way out and permissions they could not report.
            ready_after=[around.network, identity, telemetry, *([work.tenancy] if work.tenancy else [])],
        ),
        scope.below,
    )


def on_premises(service: Service, settings: OnPremises, around: Surroundings) -> HostIdentity:
    """Declare who a service's workers elsewhere are."""
    access = InstanceAccess(
        needs=needs(service),
        registry_table=around.state.registry.name,
        # These stand only on instances.
        job_table="",
        archives="",
        log_group="",
        cloudwatch_parameter="",
        queue=around.queues.get(service.name),
        sqs=_sqs_arns(service, around),
        repositories=_images(service, around),
    )
    return HostIdentity(
        around.scope.name(service.name, "on-premises"),
        HostIdentityArgs(around.scope, service.name, settings, access),
        around.scope.below,
    )


def agent_on_premises(service: Service, around: Surroundings) -> pulumi.Output[agent.Config]:
    """Return what the node agent is told on hosts elsewhere."""
    scope, known = around.scope, {"registry_table": around.state.registry.name, **_of_queue(service, around)}
    return pulumi.Output.all(**known).apply(
        lambda told: agent_config.on_premises(service, scope.region, scope.stack, Known(**told))
    )


def _image_lookup(scope: Scope, capacity: Capacity, side: GroupSide) -> Callable[[str], pulumi.Input[str]]:
    """Return who looks an image up: as late as AWS allows.

    The fallback always does at preview: a warm pool that is taken out of the stack file is still there when
    the new template arrives, because the provider updates a group before its pool.
    """
    lists_types = capacity.kind == "mixed-asg" and capacity.instance_requirements is None
    if side == "primary" and lists_types:
        return looked_up_at_launch
    return lambda image: looked_up_at_preview(scope, image)


def _agent(
    work: Workload, around: Surroundings, side: GroupSide, telemetry: Telemetry
) -> pulumi.Output[agent.Config]:
    """Return the node agent's configuration on one side, once AWS has named what stands in it."""
    hooks = None
    if side == "fallback" or work.entry.capacity.kind == "mixed-asg":
        launch = LAUNCH_HOOK if side == "fallback" else ""
        hooks = agent.Hooks(launch=launch, terminate=DRAIN_HOOK, terminate_seconds=DRAIN_HOOK_SECONDS)
    scope = around.scope
    place = agent_config.InstancePlace(
        scope.region, scope.stack, side, hooks, telemetry.log_group_name, scope.kms_key_arn
    )
    outputs = pulumi.Output.all(registry_table=around.state.registry.name, **work.known)
    return outputs.apply(lambda known: agent_config.build(work.entry, place, Known(**known), work.prepared))


def _access(work: Workload, around: Surroundings, telemetry: Telemetry) -> InstanceAccess:
    scope, state, storage = around.scope, around.state, around.storage
    files = storage.file_system
    return InstanceAccess(
        needs=needs(work.entry, prepares=work.prepared is not None and work.prepared.group == work.name),
        registry_table=state.registry.name,
        job_table=state.jobs.name,
        archives=around.store.archives_arn,
        log_group=telemetry.log_group_arn,
        cloudwatch_parameter=scope.arn("ssm", f"parameter{telemetry.parameter_name}"),
        job=work.name if work.run or work.tenancy else "",
        tenants=work.tenancy.list_arn if work.tenancy else "",
        dataset=work.dataset,
        prepared=work.prepared.dataset if work.prepared else "",
        prepared_by=work.prepared.group if work.prepared else "",
        secret=work.secret,
        artifacts=work.artifacts,
        queue=work.queue,
        sqs=work.sqs,
        file_system=files.arn if files and work.access_points else None,
        access_points=work.access_points,
        buckets=[bucket.arn for bucket in storage.buckets.values()],
        repositories=work.images,
    )
