"""A service's RabbitMQ queue."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from contracts.broker_users import BrokerQueue, BrokerRole, BrokerUser
from contracts.watched_queue import WatchedQueue
from infra.components.queues.declared_queue import DeclaredQueue, ManagedQueue, QueueArgs
from infra.components.queues.rabbitmq import alarms
from infra.components.queues.rabbitmq.broker import Broker, BrokerArgs, broker_name
from infra.components.queues.rabbitmq.users import UserSecretArgs, declare_secret
from infra.iam import rabbitmq_statements
from infra.schema.services.queues.rabbitmq import Queue


def declare(args: QueueArgs[Queue]) -> DeclaredQueue:
    """Declare a service's broker unless it exists, and return the queue."""
    settings, created = args.settings, args.settings.created_broker
    if settings.broker_of is not None:
        owner = args.declared[settings.broker_of]
        assert owner.managed is not None
        return _managed(args, _SharedBroker(owner.managed.administrator, owner.managed.monitor))
    if created is None:
        assert settings.existing is not None
        assert settings.existing.secret is not None
        secret = settings.existing.secret
        return DeclaredQueue(
            args.service,
            settings,
            attributes={"secret": secret},
            watched=_watched(args, secret, settings.existing.management_url or ""),
            access=rabbitmq_statements.access(secret, own_broker=False),
        )
    name = broker_name(args.scope, args.service)
    arguments = BrokerArgs(args.scope, args.service, created, args.network)
    broker = Broker(name, arguments, args.scope.child_options)
    monitor = declare_secret(
        f"{name}-monitor",
        UserSecretArgs(args.scope, args.service, BrokerRole.MONITOR),
        args.scope.child_options,
    )
    return _managed(args, _SharedBroker(broker.secret_name, monitor.name), broker)


@dataclass(frozen=True)
class _SharedBroker:
    """A broker of the stack; ``administrator`` and ``monitor`` are the names of secrets."""

    administrator: pulumi.Input[str]
    monitor: pulumi.Input[str]


def _managed(args: QueueArgs[Queue], shared: _SharedBroker, broker: Broker | None = None) -> DeclaredQueue:
    """Return a queue on a broker of the stack; ``broker`` if it was declared for this service."""
    service, settings = args.service, args.settings
    name = settings.queue_name(service)
    called = tuple(sorted(args.queue_names[called_service] for called_service in settings.calls))
    users: list[pulumi.Output[BrokerUser]] = []
    secrets: dict[BrokerRole, pulumi.Output[str]] = {}
    for role in (BrokerRole.WORKERS, BrokerRole.CLIENTS):
        secret = declare_secret(
            f"{broker_name(args.scope, service)}-{role.value}",
            UserSecretArgs(args.scope, service, role),
            args.scope.child_options,
        )
        # What uses the secret is created after the broker and its administrator's URL.
        names = pulumi.Output.all(secret.name, shared.administrator)
        secrets[role] = names.apply(lambda texts: str(texts[0]))
        users.append(_user(f"{service}.{role.value}", role, secrets[role], name, called))
    if broker is not None:
        users.append(_user("monitor", BrokerRole.MONITOR, shared.monitor, "", ()))
    outputs: dict[str, pulumi.Input[str]] = {"secret": secrets[BrokerRole.CLIENTS]}
    if broker is not None:
        outputs |= {"broker": broker.name, "console": broker.console_url, "administrator": broker.secret_name}
    return DeclaredQueue(
        service,
        settings,
        attributes={"secret": secrets[BrokerRole.WORKERS]},
        watched=_watched(args, shared.monitor),
        access=rabbitmq_statements.access(secrets[BrokerRole.WORKERS], shared.monitor, own_broker=True),
        extra_alarms=[*alarms.broker_alarms(service, broker.name)] if broker is not None else [],
        outputs=outputs,
        managed=ManagedQueue(
            shared.administrator,
            shared.monitor,
            BrokerQueue(name, settings.max_deliveries, settings.max_length),
            users,
            [*secrets.values(), shared.monitor],
        ),
    )


def _user(
    name: str, role: BrokerRole, secret: pulumi.Input[str], queue: str, called: tuple[str, ...]
) -> pulumi.Output[BrokerUser]:
    """Return a user; only workers call other queues."""
    calls = called if role is BrokerRole.WORKERS else ()
    return pulumi.Output.from_input(secret).apply(lambda text: BrokerUser(name, role, text, queue, calls))


def _watched(
    args: QueueArgs[Queue], secret: pulumi.Input[str], management: str = ""
) -> pulumi.Output[WatchedQueue]:
    service, kind, name = args.service, args.settings.kind, args.settings.queue_name(args.service)
    return pulumi.Output.from_input(secret).apply(
        lambda text: WatchedQueue(service, kind, name, text, management)
    )
