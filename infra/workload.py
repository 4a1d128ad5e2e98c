"""One entry of ``services[]`` or ``training[]``: who its instances are, what starts them, what holds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

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
from infra.components.identity.identity import InstanceIdentity, InstanceIdentityArgs
from infra.components.monitoring.telemetry import Telemetry, TelemetryArgs
from infra.components.network.network import Network
from infra.components.storage.storage import Storage
from infra.iam.instance_statements import InstanceAccess
from infra.schema import Capacity, Dataset, Service, Training, Work
from infra.schema.training import ON_THE_VOLUME
from infra.scope import Scope
from lambdas.core import names
from userdata.agent.aws.permissions import Need
from userdata.agent.config.names import DATA_DIR, DATASET_DEVICES, TAG_JOB

_NOTHING: Final = ("sleep", "infinity")
"""The worker of a service without image and command."""

_USER: Final = "ubuntu"
"""Of the Deep Learning AMIs; work outside containers runs as nobody special."""

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


@dataclass(frozen=True)
class Workload:
    """What a service and a training job have in common.

    ``agent`` is their part of the node agent's configuration; the others as in ``CapacityGroupArgs`` and
    ``InstanceAccess``.
    """

    name: str
    capacity: Capacity
    slots: Mapping[str, int]
    drain_seconds: int
    needs: frozenset[Need]
    agent: Mapping[str, Any]
    datasets: tuple[Dataset, ...] = ()
    run: str | None = None
    dataset: str = ""
    images: tuple[pulumi.Input[str], ...] = ()
    access_points: tuple[pulumi.Input[str], ...] = ()
    instance_tags: Mapping[str, str] = field(default_factory=dict)


def of_service(service: Service, around: Surroundings) -> Workload:
    """Return a service as a workload."""
    work: dict[str, Any] = {
        "slotsPerGpu": service.slots_per_gpu,
        "saysReady": service.says_ready,
        "command": list(service.command),
        "environment": dict(service.environment),
    }
    if service.image is not None:
        work["image"] = service.image
    elif service.command:
        work["user"] = _USER
    else:
        work["command"] = list(_NOTHING)
    if not service.capacity.is_nvidia:
        work["gpus"] = 1
    # An image from elsewhere needs no permission of ours.
    place = _ECR.match(service.image or "")
    images = [around.scope.arn_of_image(*place.groups())] if place else []
    return Workload(
        name=service.name,
        capacity=service.capacity,
        slots=service.slots,
        drain_seconds=service.drain_seconds,
        needs=frozenset({"work", "image"} if images else {"work"}),
        agent=_shared(service) | {"service": work},
        datasets=service.datasets,
        images=tuple(images),
    )


def of_training(training: Training, around: Surroundings) -> Workload:
    """Return a training job as a workload."""
    scope = around.scope
    job: dict[str, Any] = {
        "job": training.name,
        "jobTable": around.state.jobs.name,
        "repository": training.repository,
        "revision": training.revision,
        "command": list(training.command),
        "user": _USER,
        "environment": dict(training.environment),
        "maxRestarts": training.max_restarts,
        "targetParameter": names.group_parameter(scope.stack, training.name, names.PARAMETER_TARGET),
    }
    volume: dict[str, Any] = {
        "sizeGib": training.volume_gib,
        "dataset": training.dataset,
        "throughputMib": training.throughput_mib,
        "initializationRateMib": training.initialization_rate_mib,
    }
    mounts, points = [], []
    files = around.storage.file_system
    if training.checkpoints != ON_THE_VOLUME and files is not None:
        points.append(files.access_point_arns[training.checkpoints])
        mounts.append(
            {
                "fileSystem": files.id,
                "accessPoint": files.access_point_ids[training.checkpoints],
                "path": f"{DATA_DIR}/checkpoints/{training.name}",
            }
        )
    return Workload(
        name=training.name,
        capacity=training.capacity,
        slots=dict.fromkeys(training.capacity.types, 1),
        drain_seconds=0,
        needs=frozenset({"run", "volume", "dataset"} if training.dataset else {"run", "volume"}),
        agent=_shared(training) | {"training": job, "volume": volume, "efs": mounts},
        access_points=tuple(points),
        datasets=training.datasets,
        run=training.revision,
        dataset=training.dataset or "",
        instance_tags={TAG_JOB: training.name},
    )


def _shared(work: Work) -> dict[str, Any]:
    """Return what the agent is told of any work."""
    return {
        "nvidia": work.capacity.is_nvidia,
        "datasets": [
            {"snapshot": dataset.snapshot, "device": device, "path": dataset.path}
            for dataset, device in zip(work.datasets, DATASET_DEVICES, strict=False)
        ],
    }


def capacity_group(work: Workload, around: Surroundings) -> CapacityGroup:
    """Declare a workload's capacity group and all that its instances need."""
    scope, capacity = around.scope, work.capacity
    telemetry = Telemetry(
        scope.name(work.name, "telemetry"),
        TelemetryArgs(scope, work.name, around.log_retention_days, work.capacity.is_nvidia),
    )
    identity = InstanceIdentity(
        scope.name(work.name, "instance"),
        InstanceIdentityArgs(scope, work.name, _access(work, around, telemetry)),
    )

    def launchables(side: str, image_id: Callable[[str], pulumi.Input[str]]) -> list[Launchable]:
        made: list[Launchable] = []
        for image, types in capacity.images.items():
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
                    security_group_id=around.network.worker_security_group_id,
                    store=around.store,
                    cloudwatch_parameter=telemetry.parameter_name,
                    agent=_agent(work, around, side, telemetry),
                    datasets=work.datasets,
                    instance_tags=work.instance_tags,
                ),
            )
            made.append(Launchable(template, types))
        return made

    is_fleet = capacity.kind == "spot-fleet"
    return CapacityGroup(
        scope.name(work.name),
        CapacityGroupArgs(
            scope=scope,
            group=work.name,
            capacity=capacity,
            primary=launchables("primary", looked_up_at_preview if is_fleet else looked_up_at_launch),
            fallback=launchables("fallback", looked_up_at_launch) if capacity.fallback.enabled else [],
            subnet_ids=around.network.private_subnet_ids,
            instance_role_arn=identity.role_arn,
            slots=work.slots,
            drain_seconds=work.drain_seconds,
            run=work.run,
            # Warm instances start with the group: without a way out and permissions they could not report.
            ready_after=[around.network, identity, telemetry],
        ),
    )


def _agent(work: Workload, around: Surroundings, side: str, telemetry: Telemetry) -> dict[str, Any]:
    """Return the node agent's configuration on one side; ``userdata.agent.config.model`` is the reference."""
    parts: dict[str, Any] = {
        "region": around.scope.region,
        "stack": around.scope.stack,
        "group": work.name,
        "side": side,
        "registryTable": around.state.registry.name,
        "drainSeconds": work.drain_seconds,
        "metrics": {"logGroup": telemetry.log_group_name},
        **work.agent,
    }
    if side == "fallback" or work.capacity.kind == "mixed-asg":
        launch = {"launch": LAUNCH_HOOK} if side == "fallback" else {}
        parts["hooks"] = {**launch, "terminate": DRAIN_HOOK, "terminateSeconds": DRAIN_HOOK_SECONDS}
    return parts


def _access(work: Workload, around: Surroundings, telemetry: Telemetry) -> InstanceAccess:
    scope, state, storage = around.scope, around.state, around.storage
    has_hooks = work.capacity.kind == "mixed-asg" or work.capacity.fallback.enabled
    files = storage.file_system
    needs: set[Need] = set(work.needs)
    if has_hooks:
        needs.add("hooks")
    if work.datasets:
        needs.add("attached")
    return InstanceAccess(
        needs=frozenset(needs),
        registry_table=state.registry.name,
        job_table=state.jobs.name,
        archive=around.store.archive_arn,
        log_group=telemetry.log_group_arn,
        cloudwatch_parameter=scope.arn("ssm", f"parameter{telemetry.parameter_name}"),
        job=work.name if work.run else "",
        dataset=work.dataset,
        file_system=files.arn if files and work.access_points else None,
        access_points=work.access_points,
        buckets=[bucket.arn for bucket in storage.buckets.values()],
        repositories=work.images,
    )
