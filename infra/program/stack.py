"""One stack: settings in, components out."""

from __future__ import annotations

from datetime import UTC, datetime

import pulumi

from infra.components.capacity.agent_store import AgentStore, AgentStoreArgs
from infra.components.control.controller import Controller, ControllerArgs
from infra.components.control.drills import Drills, DrillsArgs
from infra.components.control.health import HealthChecker
from infra.components.control.scaler import Scaler
from infra.components.control.scheduled_function import KeeperArgs
from infra.components.control.state import State, StateArgs
from infra.components.identity.previews import Deploys, DeploysArgs, Previews, PreviewsArgs
from infra.components.monitoring.broker_alarms import WatchedBroker
from infra.components.monitoring.monitoring import Monitoring, MonitoringArgs
from infra.components.monitoring.queue_alarms import QueueBounds
from infra.components.monitoring.sqs_alarms import WatchedSqs
from infra.components.monitoring.tensorboard import TensorBoard, TensorBoardArgs
from infra.components.network.network import Network, NetworkArgs
from infra.components.queue.broker import Broker, BrokerArgs, broker_name
from infra.components.queue.sqs import Sqs, SqsArgs
from infra.components.queue.watcher import QueueWatcher, QueueWatcherArgs
from infra.components.storage.storage import Storage, StorageArgs
from infra.components.tenants.tenancy import Tenancy, TenancyArgs
from infra.program import cluster, outputs, workload
from infra.schema import Queue, Service, Settings, SharedHost, Training
from infra.schema.services.sqs_queue import SqsQueue
from infra.scope import Scope, scope_of
from infra.settings import read_settings
from userdata import render


def declare() -> None:
    """Declare everything that the running stack's settings ask for, and export what its user needs next."""
    settings = read_settings()
    within(scope_of(settings, pulumi.get_stack()), settings)


def within(scope: Scope, stack_file: Settings) -> None:
    """Declare everything that ``stack_file`` asks for; the scope is told what its user needs next."""
    settings = stack_file.on_instances
    for remark in stack_file.remarks(datetime.now(UTC)):
        pulumi.log.warn(remark)
    entries: tuple[Service | Training | SharedHost, ...] = (
        *settings.services,
        *settings.jobs,
        *(builder.entry for builder in settings.builders),
        *settings.shared_hosts,
    )
    network = Network(
        scope.name("network"),
        NetworkArgs(
            scope,
            settings.network,
            frozenset().union(*map(workload.needs, entries)),
            settings.log_retention_days,
        ),
        scope.below,
    )
    state = State(scope.name("state"), StateArgs(scope), scope.below)
    storage = _storage(settings, scope, network)
    store = AgentStore(scope.name("agent"), AgentStoreArgs(scope), scope.below)
    # A service's queue is there wherever its workers are.
    brokers = _brokers(stack_file, scope, network)
    queues, sqs = _queues(stack_file, brokers), _sqs(stack_file, scope)
    around = workload.Surroundings(
        scope, network, state, storage, store, settings.log_retention_days, queues, sqs
    )
    tenancies = _tenancies(settings, around)
    groups = {
        work.name: workload.capacity_group(work, around)
        for work in (
            *(workload.of_service(service, around) for service in settings.services),
            *(workload.of_training(training, around) for training in settings.jobs),
            *(workload.of_builder(builder, around) for builder in settings.builders),
            *(workload.of_host(host, tenancies[host.name], around) for host in settings.shared_hosts),
        )
    }
    kept = {name: capacity for name, capacity in settings.capacities.items() if capacity.is_kept}
    controller = Controller(
        scope.name("controller"),
        ControllerArgs(
            scope,
            state,
            settings.log_retention_days,
            fleets=any(capacity.kind == "spot-fleet" for capacity in kept.values()),
            blocks=any(job.capacity_block is not None for job in settings.jobs),
            zones=any(group.by_zone for group in groups.values()),
            ready_after=list(groups.values()),
        ),
        scope.below,
    )
    if reading := [service for service in stack_file.services if service.queue is not None]:
        QueueWatcher(
            scope.name("queues"),
            QueueWatcherArgs(scope, reading, queues, sqs, network, state, settings.log_retention_days),
            scope.below,
        )
    jobs = {entry.name: entry.has_volume for entry in entries if isinstance(entry, Training)}
    deadlines = {job.name for job in settings.jobs if job.deadline}
    budgets = {job.name for job in settings.jobs if job.budget}
    monitoring = Monitoring(
        scope.name("monitoring"),
        MonitoringArgs(
            scope,
            settings.monitoring,
            kept,
            jobs,
            deadlines,
            budgets,
            controller,
            _watched(stack_file, brokers),
            _bounds(stack_file),
            [WatchedSqs(name, one.dead_name) for name, one in sqs.items()],
            [service.name for service in settings.services if service.scaling is not None],
            {host.name: [tenant.name for tenant in host.tenants] for host in settings.shared_hosts},
        ),
        scope.below,
    )
    if drilled := {name: capacity.drill for name, capacity in kept.items() if capacity.drill}:
        Drills(scope.name("drills"), DrillsArgs(scope, drilled, monitoring.shortage_arns))
    _health(settings, scope, state, monitoring, list(groups.values()))
    _scaler(settings, scope, state, monitoring, list(groups.values()))
    _tensorboard(settings, scope, network, storage)
    outputs.of_stack(scope, network, state, groups, controller, monitoring)
    outputs.of_storage(scope, storage)
    if brokers or sqs:
        outputs.of_queues(scope, brokers, sqs)
    _on_premises(settings, around)
    cluster.declare(stack_file, cluster.Neighbourhood(scope, network, storage, queues, sqs))
    if tenancies:
        scope.export("sharedHosts", {name: one.forwarding for name, one in tenancies.items()})
    if settings.identity.previews is not None:
        there = stack_file.kubernetes
        args = PreviewsArgs(
            scope,
            settings.identity.previews,
            settings.own_image_parameters,
            snapshots=any(work.datasets for work in (*stack_file.services, *stack_file.training)),
            brokers=bool(brokers),
            network=settings.network,
            cluster=there.cluster if there is not None and there.own is None else None,
        )
        previews = Previews(scope.name("previews"), args, scope.below)
        scope.export("previewRoleArn", previews.role_arn)
        if settings.identity.deploys is not None:
            of_deploys = DeploysArgs(
                scope, settings.identity.deploys, settings.identity.previews, previews.provider_arn
            )
            deploys = Deploys(scope.name("deploys"), of_deploys, scope.below)
            scope.export("deployRoleArn", deploys.role_arn)
            scope.export("driftRoleArn", deploys.drift_role_arn)


def _storage(settings: Settings, scope: Scope, network: Network) -> Storage:
    return Storage(
        scope.name("storage"),
        StorageArgs(
            scope,
            settings.storage,
            network.vpc_id,
            network.subnet_ids,
            network.worker_security_group_id,
        ),
        scope.below,
    )


def _health(
    settings: Settings,
    scope: Scope,
    state: State,
    monitoring: Monitoring,
    ready_after: list[pulumi.Resource],
) -> None:
    services = [service for service in settings.services if service.capacity.is_kept]
    if services:
        args = KeeperArgs(
            scope, services, state, monitoring.topic_arn, settings.log_retention_days, ready_after
        )
        checker = HealthChecker(scope.name("health-checker"), args, scope.below)
        scope.export("healthLogGroup", checker.log_group_name)


def _scaler(
    settings: Settings,
    scope: Scope,
    state: State,
    monitoring: Monitoring,
    ready_after: list[pulumi.Resource],
) -> None:
    services = [service for service in settings.services if service.scaling is not None]
    if services:
        args = KeeperArgs(
            scope, services, state, monitoring.topic_arn, settings.log_retention_days, ready_after
        )
        scope.export("scalerLogGroup", Scaler(scope.name("scaler"), args, scope.below).log_group_name)


def _tensorboard(settings: Settings, scope: Scope, network: Network, storage: Storage) -> None:
    if settings.tensorboard is None or storage.file_system is None:
        return
    args = TensorBoardArgs(
        scope,
        settings.tensorboard,
        storage.file_system,
        next(iter(network.subnet_ids.values())),
        network.security_group_ids,
    )
    TensorBoard(scope.name("tensorboard"), args, scope.below)


def _brokers(settings: Settings, scope: Scope, network: Network) -> dict[str, Broker]:
    """Declare the brokers of the stack's own, by service."""
    return {
        service.name: Broker(
            broker_name(scope, service.name),
            BrokerArgs(
                scope,
                service.name,
                own,
                network.vpc_id,
                network.subnet_ids,
                network.worker_security_group_id,
            ),
            scope.below,
        )
        for service in settings.services
        if isinstance(service.queue, Queue) and (own := service.queue.own) is not None
    }


def _queues(settings: Settings, brokers: dict[str, Broker]) -> dict[str, pulumi.Input[str]]:
    """Return the names of the secrets of all queues, by service."""
    queues: dict[str, pulumi.Input[str]] = {name: broker.secret_name for name, broker in brokers.items()}
    for service in settings.services:
        if isinstance(service.queue, Queue) and service.queue.existing is not None:
            queues[service.name] = service.queue.existing.secret
    return queues


def _on_premises(settings: Settings, around: workload.Surroundings) -> None:
    """Declare who workers elsewhere are, and export what their hosts need."""
    hosts = {}
    for service in settings.services:
        if service.on_premises is None:
            continue
        identity = workload.on_premises(service, service.on_premises, around)
        hosts[service.name] = {
            "policy": identity.policy_arn,
            "role": identity.role_arn,
            "agent": workload.agent_on_premises(service, around).apply(render.configuration),
            "archive": pulumi.Output.concat("s3://", around.store.bucket, "/", around.store.archive.key),
        }
    if hosts:
        around.scope.export("onPremises", hosts)


def _sqs(settings: Settings, scope: Scope) -> dict[str, Sqs]:
    """Declare the queues of SQS, by service."""
    return {
        service.name: Sqs(
            scope.name(service.name, "sqs"), SqsArgs(scope, service.name, service.queue), scope.below
        )
        for service in settings.services
        if isinstance(service.queue, SqsQueue)
    }


def _tenancies(settings: Settings, around: workload.Surroundings) -> dict[str, Tenancy]:
    """Declare what the tenants of shared hosts need, by host."""
    return {
        host.name: Tenancy(
            around.scope.name(host.name, "tenants"),
            TenancyArgs(around.scope, host, around.store, around.network.vpc_id),
            around.scope.below,
        )
        for host in settings.shared_hosts
    }


def _watched(settings: Settings, brokers: dict[str, Broker]) -> list[WatchedBroker]:
    """Return what the alarms must know of the brokers."""
    return [
        WatchedBroker(service.name, brokers[service.name].name)
        for service in settings.services
        if service.name in brokers
    ]


def _bounds(settings: Settings) -> list[QueueBounds]:
    """Return what the alarms must know of all queues."""
    return [
        QueueBounds(
            service.name,
            service.queue.most if isinstance(service.queue, Queue) else 0,
            service.queue.oldest_seconds,
        )
        for service in settings.services
        if service.queue is not None
    ]
