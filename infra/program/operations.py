"""The resources that operate a stack: functions, monitoring, drills, TensorBoard, roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.components.cluster import job_failures
from infra.components.control import job_schedules
from infra.components.control.controller import Controller, ControllerArgs
from infra.components.control.drills import Drills, DrillsArgs
from infra.components.control.health import HealthChecker
from infra.components.control.scaler import Scaler
from infra.components.control.scheduled_function import ServiceFunctionArgs
from infra.components.identity.previews import Deploys, DeploysArgs, Previews, PreviewsArgs
from infra.components.monitoring.alarm_spec import AlarmSpec, function_alarms
from infra.components.monitoring.monitoring import Monitoring, MonitoringArgs
from infra.components.monitoring.tensorboard import TensorBoard, TensorBoardArgs
from infra.components.queues.broker_users import SHORT, BrokerUsers, BrokerUsersArgs
from infra.components.queues.watcher import QueueWatcher, QueueWatcherArgs
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Service, Settings
from infra.schema.operations import Previews as PreviewSettings
from infra.scope import Scope


@dataclass(frozen=True)
class Operations:
    """The operational resources that every stack has."""

    controller: Controller
    monitoring: Monitoring


def declare(settings: Settings, foundation: Foundation, workloads: Sequence[Workload]) -> Operations:
    """Declare the resources and export the optional ones."""
    controlled = [workload for workload in workloads if workload.capacity.is_managed]
    controller = _controller(settings, foundation, workloads, controlled)
    alarms = [*_broker_users(foundation), *_failed_jobs(settings, foundation.scope)]
    monitoring = _monitoring(settings, foundation, controlled, controller, alarms)
    _queue_watcher(settings, foundation)
    _drills(foundation, controlled, monitoring)
    _job_schedules(settings, foundation, controller, workloads)
    _service_functions(settings, foundation, workloads, monitoring)
    _tensorboard(settings, foundation)
    if settings.identity.previews is not None:
        _roles(settings, settings.identity.previews, foundation, workloads)
    return Operations(controller, monitoring)


def _controller(
    settings: Settings, foundation: Foundation, workloads: Sequence[Workload], controlled: Sequence[Workload]
) -> Controller:
    scope = foundation.scope
    args = ControllerArgs(
        foundation.functions,
        has_fleets=any(workload.capacity.is_fleet for workload in controlled),
        has_capacity_blocks=any(workload.has_block for workload in workloads),
        launches_by_zone=any(w.group.by_zone or w.group.spreads for w in workloads),
        scheduled_jobs=[job.name for job in settings.on_instances.jobs if job.schedule],
        depends_on=[workload.group for workload in workloads],
    )
    return Controller(scope.name("controller"), args, scope.child_options)


def _broker_users(foundation: Foundation) -> Iterator[AlarmSpec]:
    """Declare the function that maintains brokers' users; yield its alarms."""
    scope = foundation.scope
    queues = [queue.managed for queue in foundation.queues.values() if queue.managed is not None]
    if queues:
        args = BrokerUsersArgs(foundation.functions, queues, foundation.network)
        function = BrokerUsers(scope.name(SHORT), args, scope.child_options).function_name
        consequence = "no user of a broker is created, and no password rotated."
        yield from function_alarms(SHORT, function, title="broker users function", consequence=consequence)


def _failed_jobs(settings: Settings, scope: Scope) -> Iterator[AlarmSpec]:
    """Yield the alarms of jobs on Kubernetes."""
    if settings.kubernetes is not None:
        watched = job_failures.watched(settings.kubernetes, settings.on_kubernetes.training)
        yield from job_failures.alarms(scope.stack, watched)


def _monitoring(
    settings: Settings,
    foundation: Foundation,
    controlled: Sequence[Workload],
    controller: Controller,
    alarms: Sequence[AlarmSpec],
) -> Monitoring:
    scope = foundation.scope
    args = MonitoringArgs(
        scope,
        settings.monitoring,
        [workload.monitored for workload in controlled],
        controller,
        [*(alarm for queue in foundation.queues.values() for alarm in queue.alarms(scope.stack)), *alarms],
    )
    return Monitoring(scope.name("monitoring"), args, scope.child_options)


def _queue_watcher(settings: Settings, foundation: Foundation) -> None:
    scope, queues = foundation.scope, [*foundation.queues.values()]
    with_http = [service.name for service in settings.services if service.http is not None]
    kubernetes, on_kubernetes = settings.kubernetes, settings.on_kubernetes.services
    scaled = [service.name for service in on_kubernetes if service.is_scaled]
    if queues or with_http:
        args = QueueWatcherArgs(
            foundation.functions,
            queues,
            # SQS is not an address of the VPC.
            foundation.network if with_http or any(q.settings.has_secret for q in queues) else None,
            dict.fromkeys(scaled, kubernetes.queued_per_worker) if kubernetes is not None else {},
            with_http,
        )
        QueueWatcher(scope.name("queues"), args, scope.child_options)


def _drills(foundation: Foundation, controlled: Sequence[Workload], monitoring: Monitoring) -> None:
    scope = foundation.scope
    if drills := {entry.name: entry.capacity.drill for entry in controlled if entry.capacity.drill}:
        Drills(scope.name("drills"), DrillsArgs(scope, drills, monitoring.shortage_arns))


def _job_schedules(
    settings: Settings, foundation: Foundation, controller: Controller, workloads: Sequence[Workload]
) -> None:
    groups = {workload.name: workload.group for workload in workloads}
    for job in settings.on_instances.jobs:
        if job.schedule is not None and job.schedule.at is not None:
            dead_letters_arn = controller.wake_ups.dead_letter_arn
            job_schedules.declare(
                foundation.scope, job.name, job.schedule, dead_letters_arn, groups[job.name]
            )


def _service_functions(
    settings: Settings, foundation: Foundation, workloads: Sequence[Workload], monitoring: Monitoring
) -> None:
    """Declare the health checker and the scaler of services on instances."""
    scope = foundation.scope

    def args(services: Sequence[Service]) -> ServiceFunctionArgs:
        groups = [workload.group for workload in workloads]
        queues = {name: queue.for_workers for name, queue in foundation.queues.items()}
        return ServiceFunctionArgs(foundation.functions, services, monitoring.topic_arn, groups, queues)

    services = settings.on_instances.services
    if checked := [service for service in services if service.capacity.is_managed]:
        checker = HealthChecker(scope.name("health-checker"), args(checked), scope.child_options)
        scope.export("healthLogGroup", checker.log_group_name)
    if scaled := [service for service in services if service.scaling is not None]:
        scaler = Scaler(scope.name("scaler"), args(scaled), scope.child_options)
        scope.export("scalerLogGroup", scaler.log_group_name)


def _tensorboard(settings: Settings, foundation: Foundation) -> None:
    scope, network, files = foundation.scope, foundation.network, foundation.storage.file_system
    if settings.tensorboard is not None and files is not None:
        subnet = next(iter(network.subnet_ids.values()))
        args = TensorBoardArgs(
            scope,
            settings.tensorboard,
            files,
            subnet,
            network.security_group_ids,
            network.has_public_addresses,
        )
        TensorBoard(scope.name("tensorboard"), args, scope.child_options)


def _roles(
    settings: Settings, role_settings: PreviewSettings, foundation: Foundation, workloads: Sequence[Workload]
) -> None:
    """Declare the roles for previews and deployments."""
    scope = foundation.scope
    args = PreviewsArgs(
        scope,
        role_settings,
        settings.on_instances.own_image_parameters,
        snapshots=any(work.datasets for work in (*settings.services, *settings.training)),
        queues=[queue.access for queue in foundation.queues.values()],
        vpc_id=settings.network.vpc_id,
        interfaces=settings.network.endpoints == "interface" or bool(settings.called_by_functions),
        cluster=settings.kubernetes,
    )
    previews = Previews(scope.name("previews"), args, scope.child_options)
    scope.export("previewRoleArn", previews.role_arn)
    if settings.identity.deploys is not None:
        deploys_args = DeploysArgs(
            scope,
            settings.identity.deploys,
            role_settings,
            previews.provider_arn,
            args.images,
            [
                *foundation.store.arns,
                *(bucket.arn for bucket in foundation.storage.buckets.values()),
                *(arn for workload in workloads for arn in workload.bucket_arns),
            ],
        )
        deploys = Deploys(scope.name("deploys"), deploys_args, scope.child_options)
        scope.export("deployRoleArn", deploys.role_arn)
        scope.export("driftRoleArn", deploys.drift_role_arn)
