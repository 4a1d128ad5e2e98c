"""A service's RabbitMQ queue."""

from __future__ import annotations

import pulumi

from contracts.watched_queue import WatchedQueue
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.components.queues.rabbitmq import alarms
from infra.components.queues.rabbitmq.broker import Broker, BrokerArgs, broker_name
from infra.iam import rabbitmq_statements
from infra.schema.services.queues.rabbitmq import Queue


def declare(args: QueueArgs[Queue]) -> DeclaredQueue:
    """Declare a service's broker unless it exists, and return the queue."""
    settings, created = args.settings, args.settings.created_broker
    if settings.broker_of is not None:
        return _queue(args, args.declared[settings.broker_of].attributes["secret"], in_stack=True)
    if created is None:
        assert settings.existing is not None
        assert settings.existing.secret is not None
        return _queue(args, settings.existing.secret, settings.existing.management_url or "")
    network = args.network
    subnets, workers = network.subnet_ids, network.worker_security_group_id
    broker = Broker(
        broker_name(args.scope, args.service),
        BrokerArgs(args.scope, args.service, created, network.vpc_id, subnets, workers),
        args.scope.child_options,
    )
    return _queue(args, broker.secret_name, broker=broker, in_stack=True)


def _queue(
    args: QueueArgs[Queue],
    secret: pulumi.Input[str],
    management: str = "",
    broker: Broker | None = None,
    *,
    in_stack: bool = False,
) -> DeclaredQueue:
    """Return the queue; ``in_stack``: the stack creates its broker, for this service or another one."""
    service, name = args.service, args.settings.queue_name(args.service)
    outputs: dict[str, pulumi.Input[str]] = {}
    if broker is not None:
        outputs = {"broker": broker.name, "console": broker.console_url, "secret": broker.secret_name}
    return DeclaredQueue(
        service,
        args.settings,
        attributes={"secret": secret},
        watched=pulumi.Output.from_input(secret).apply(
            lambda secret_name: WatchedQueue(service, args.settings.kind, name, secret_name, management)
        ),
        access=rabbitmq_statements.access(secret, own_broker=in_stack),
        extra_alarms=[*alarms.broker_alarms(service, broker.name)] if broker is not None else [],
        outputs=outputs,
    )
