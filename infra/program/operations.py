"""What looks after all entries of a stack, and who may change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.components.control.controller import Controller, ControllerArgs
from infra.components.control.drills import Drills, DrillsArgs
from infra.components.control.health import HealthChecker
from infra.components.control.scaler import Scaler
from infra.components.control.scheduled_function import KeeperArgs
from infra.components.identity.previews import Deploys, DeploysArgs, Previews, PreviewsArgs
from infra.components.monitoring.monitoring import Monitoring, MonitoringArgs
from infra.components.monitoring.tensorboard import TensorBoard, TensorBoardArgs
from infra.components.queues.watcher import QueueWatcher, QueueWatcherArgs
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Service, Settings
from infra.schema.operations import Previews as PreviewSettings


@dataclass(frozen=True)
class Operations:
    """What every stack has of it."""

    controller: Controller
    monitoring: Monitoring


def declare(settings: Settings, foundation: Foundation, workloads: Sequence[Workload]) -> Operations:
    """Declare it, and export what not every stack has."""
    controlled = [workload for workload in workloads if workload.capacity.is_kept]
    controller = _controller(foundation, workloads, controlled)
    monitoring = _monitoring(settings, foundation, controlled, controller)
    _queue_watcher(foundation)
    _drills(foundation, controlled, monitoring)
    _keepers(settings, foundation, workloads, monitoring)
    _tensorboard(settings, foundation)
    if settings.identity.previews is not None:
        _roles(settings, settings.identity.previews, foundation)
    return Operations(controller, monitoring)


def _controller(
    foundation: Foundation, workloads: Sequence[Workload], controlled: Sequence[Workload]
) -> Controller:
    scope = foundation.scope
    args = ControllerArgs(
        scope,
        foundation.state,
        foundation.log_retention_days,
        fleets=any(workload.capacity.is_fleet for workload in controlled),
        blocks=any(workload.has_block for workload in workloads),
        zones=any(workload.group.by_zone for workload in workloads),
        ready_after=[workload.group for workload in workloads],
    )
    return Controller(scope.name("controller"), args, scope.below)


def _monitoring(
    settings: Settings, foundation: Foundation, controlled: Sequence[Workload], controller: Controller
) -> Monitoring:
    scope = foundation.scope
    args = MonitoringArgs(
        scope,
        settings.monitoring,
        [workload.monitored for workload in controlled],
        controller,
        [alarm for queue in foundation.queues.values() for alarm in queue.alarms(scope.stack)],
    )
    return Monitoring(scope.name("monitoring"), args, scope.below)


def _queue_watcher(foundation: Foundation) -> None:
    scope, queues = foundation.scope, [*foundation.queues.values()]
    if queues:
        args = QueueWatcherArgs(
            scope, queues, foundation.network, foundation.state, foundation.log_retention_days
        )
        QueueWatcher(scope.name("queues"), args, scope.below)


def _drills(foundation: Foundation, controlled: Sequence[Workload], monitoring: Monitoring) -> None:
    scope = foundation.scope
    if drilled := {one.name: one.capacity.drill for one in controlled if one.capacity.drill}:
        Drills(scope.name("drills"), DrillsArgs(scope, drilled, monitoring.shortage_arns))


def _keepers(
    settings: Settings, foundation: Foundation, workloads: Sequence[Workload], monitoring: Monitoring
) -> None:
    """Declare the health checker and the scaler of services on instances."""
    scope = foundation.scope

    def args(services: Sequence[Service]) -> KeeperArgs:
        return KeeperArgs(
            scope,
            services,
            foundation.state,
            monitoring.topic_arn,
            foundation.log_retention_days,
            [workload.group for workload in workloads],
        )

    here = settings.on_instances.services
    if checked := [service for service in here if service.capacity.is_kept]:
        checker = HealthChecker(scope.name("health-checker"), args(checked), scope.below)
        scope.export("healthLogGroup", checker.log_group_name)
    if scaled := [service for service in here if service.scaling is not None]:
        scaler = Scaler(scope.name("scaler"), args(scaled), scope.below)
        scope.export("scalerLogGroup", scaler.log_group_name)


def _tensorboard(settings: Settings, foundation: Foundation) -> None:
    scope, network, files = foundation.scope, foundation.network, foundation.storage.file_system
    if settings.tensorboard is not None and files is not None:
        subnet = next(iter(network.subnet_ids.values()))
        args = TensorBoardArgs(scope, settings.tensorboard, files, subnet, network.security_group_ids)
        TensorBoard(scope.name("tensorboard"), args, scope.below)


def _roles(settings: Settings, of_previews: PreviewSettings, foundation: Foundation) -> None:
    """Declare the roles of previews and deployments."""
    scope, there = foundation.scope, settings.kubernetes
    args = PreviewsArgs(
        scope,
        of_previews,
        settings.on_instances.own_image_parameters,
        snapshots=any(work.datasets for work in (*settings.services, *settings.training)),
        queues=[queue.access for queue in foundation.queues.values()],
        network=settings.network,
        cluster=there.cluster if there is not None and there.own is None else None,
    )
    previews = Previews(scope.name("previews"), args, scope.below)
    scope.export("previewRoleArn", previews.role_arn)
    if settings.identity.deploys is not None:
        of_deploys = DeploysArgs(scope, settings.identity.deploys, of_previews, previews.provider_arn)
        deploys = Deploys(scope.name("deploys"), of_deploys, scope.below)
        scope.export("deployRoleArn", deploys.role_arn)
        scope.export("driftRoleArn", deploys.drift_role_arn)
