"""One stack: settings in, components out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pulumi
import pulumi_aws as aws

from infra import workload
from infra.components.capacity.agent_store import AgentStore, AgentStoreArgs
from infra.components.capacity.capacity_group import CapacityGroup
from infra.components.control.controller import Controller, ControllerArgs
from infra.components.control.health import HealthChecker, HealthCheckerArgs
from infra.components.control.state import State, StateArgs
from infra.components.identity.previews import Previews, PreviewsArgs
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
from infra.schema import Queue, Service, Settings, Training
from infra.schema.sqs_queue import SqsQueue
from infra.scope import Scope
from infra.settings import read_settings
from lambdas.core import names
from userdata import render


def declare() -> None:
    """Declare everything that the running stack's settings ask for, and export what its user needs next."""
    settings = read_settings()
    for warning in (*settings.warnings(), *settings.past_deadlines(datetime.now(UTC))):
        pulumi.log.warn(warning)
    scope = Scope(
        stack=pulumi.get_stack(),
        region=settings.region,
        account_id=aws.get_caller_identity_output().account_id,
        partition=aws.get_partition_output().partition,
        extra_tags=settings.tags,
        permissions_boundary=settings.identity.permissions_boundary,
        protect=settings.protect,
        kms_key_arn=settings.kms_key_arn,
    )
    entries: tuple[Service | Training, ...] = (
        *settings.services,
        *settings.jobs,
        *(builder.entry for builder in settings.builders),
    )
    network = Network(
        scope.name("network"),
        NetworkArgs(
            scope,
            settings.network,
            frozenset().union(*map(workload.needs, entries)),
            settings.log_retention_days,
        ),
    )
    state = State(scope.name("state"), StateArgs(scope))
    storage = _storage(settings, scope, network)
    store = AgentStore(scope.name("agent"), AgentStoreArgs(scope))
    brokers = _brokers(settings, scope, network)
    queues, sqs = _queues(settings, brokers), _sqs(settings, scope)
    around = workload.Surroundings(
        scope, network, state, storage, store, settings.log_retention_days, queues, sqs
    )
    groups = {
        work.name: workload.capacity_group(work, around)
        for work in (
            *(workload.of_service(service, around) for service in settings.services),
            *(workload.of_training(training, around) for training in settings.jobs),
            *(workload.of_builder(builder, around) for builder in settings.builders),
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
    )
    if reading := [service for service in settings.services if service.queue is not None]:
        QueueWatcher(
            scope.name("queues"),
            QueueWatcherArgs(scope, reading, queues, sqs, network, state, settings.log_retention_days),
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
            _watched(settings, brokers),
            _bounds(settings),
            [WatchedSqs(name, one.dead_name) for name, one in sqs.items()],
        ),
    )
    _health(settings, scope, state, monitoring, list(groups.values()))
    _tensorboard(settings, scope, network, storage)
    _export(scope, network, state, groups, controller, monitoring)
    _export_storage(storage)
    if brokers or sqs:
        _export_queues(brokers, sqs)
    _on_premises(settings, around)
    if settings.identity.previews is not None:
        args = PreviewsArgs(
            scope,
            settings.identity.previews,
            settings.own_image_parameters,
            snapshots=any(work.datasets for work in entries),
            brokers=bool(brokers),
            network=settings.network,
        )
        previews = Previews(scope.name("previews"), args)
        pulumi.export("previewRoleArn", previews.role_arn)


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
        args = HealthCheckerArgs(
            scope, services, state, monitoring.topic_arn, settings.log_retention_days, ready_after
        )
        pulumi.export("healthLogGroup", HealthChecker(scope.name("health-checker"), args).log_group_name)


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
    TensorBoard(scope.name("tensorboard"), args)


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
        pulumi.export("onPremises", hosts)


def _sqs(settings: Settings, scope: Scope) -> dict[str, Sqs]:
    """Declare the queues of SQS, by service."""
    return {
        service.name: Sqs(scope.name(service.name, "sqs"), SqsArgs(scope, service.name, service.queue))
        for service in settings.services
        if isinstance(service.queue, SqsQueue)
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


def _export(
    scope: Scope,
    network: Network,
    state: State,
    groups: dict[str, CapacityGroup],
    controller: Controller,
    monitoring: Monitoring,
) -> None:
    pulumi.export("vpcId", network.vpc_id)
    pulumi.export("privateSubnetIds", list(network.subnet_ids.values()))
    pulumi.export("memoryTable", state.memory.name)
    pulumi.export("registryTable", state.registry.name)
    pulumi.export("jobTable", state.jobs.name)
    pulumi.export("queueUrl", controller.wake_ups.queue_url)
    pulumi.export("deadLetterQueueUrl", controller.wake_ups.dead_letter_url)
    pulumi.export("controllerFunction", controller.function_name)
    pulumi.export("controllerLogGroup", controller.log_group_name)
    pulumi.export("alarmTopic", monitoring.topic_arn)
    pulumi.export("dashboard", monitoring.dashboard_name)
    pulumi.export(
        "followDecisions",
        pulumi.Output.concat(
            "aws logs tail ", controller.log_group_name, " --follow --region ", scope.region
        ),
    )
    pulumi.export("groups", {name: _group(scope, name, group) for name, group in groups.items()})


def _group(scope: Scope, name: str, group: CapacityGroup) -> dict[str, Any]:
    return {
        "primary": group.primary_name,
        "fallback": group.fallback_name,
        "control": names.group_parameter(scope.stack, name, names.PARAMETER_CONTROL)
        if group.is_kept
        else None,
    }


def _export_queues(brokers: dict[str, Broker], sqs: dict[str, Sqs]) -> None:
    of_brokers = {
        name: {"broker": one.name, "console": one.console_url, "secret": one.secret_name}
        for name, one in brokers.items()
    }
    of_sqs = {
        name: {"url": one.url, "queue": one.name, "deadLetters": one.dead_name, "callers": one.callers_policy}
        for name, one in sqs.items()
    }
    pulumi.export("queues", {**of_brokers, **of_sqs})


def _export_storage(storage: Storage) -> None:
    if storage.file_system is not None:
        pulumi.export("fileSystemId", storage.file_system.id)
        pulumi.export("accessPointIds", storage.file_system.access_point_ids)
    if storage.buckets:
        pulumi.export("buckets", {name: bucket.name for name, bucket in storage.buckets.items()})
    if storage.repositories:
        pulumi.export("repositories", {name: one.url for name, one in storage.repositories.items()})
