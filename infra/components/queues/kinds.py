"""Kinds of queue by ``services[].queue.kind``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from infra.components.network.network import Network
from infra.components.queues import removed
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.components.queues.rabbitmq import queue as rabbitmq
from infra.components.queues.sqs import queue as sqs
from infra.schema import Settings
from infra.schema.services.service import Service
from infra.scope import Scope

KINDS: Final[Mapping[str, Callable[[QueueArgs[Any]], DeclaredQueue]]] = {
    "rabbitmq": rabbitmq.declare,
    "sqs": sqs.declare,
}


def declare(settings: Settings, scope: Scope, network: Network) -> dict[str, DeclaredQueue]:
    """Declare the services' queues, by service; those on another service's broker after that one."""
    removed.refuse_if_used(settings.services, scope)
    queues: dict[str, DeclaredQueue] = {}
    names = {s.name: s.queue.queue_name(s.name) for s in settings.services if s.queue is not None}
    for service in sorted(settings.services, key=_shares_a_broker):
        if service.queue is not None:
            args = QueueArgs(scope, service.name, service.queue, network, queues, names)
            queues[service.name] = KINDS[service.queue.kind](args)
    return {service.name: queues[service.name] for service in settings.services if service.queue is not None}


def _shares_a_broker(service: Service) -> bool:
    return service.queue is not None and service.queue.broker_of is not None
