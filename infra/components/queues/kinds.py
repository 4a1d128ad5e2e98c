"""Kinds of queue by ``services[].queue.kind``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from infra.components.network.network import Network
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.components.queues.rabbitmq import queue as rabbitmq
from infra.components.queues.sqs import queue as sqs
from infra.schema import Settings
from infra.scope import Scope

KINDS: Final[Mapping[str, Callable[[QueueArgs[Any]], DeclaredQueue]]] = {
    "rabbitmq": rabbitmq.declare,
    "sqs": sqs.declare,
}


def declare(settings: Settings, scope: Scope, network: Network) -> dict[str, DeclaredQueue]:
    """Declare the services' queues, by service."""
    return {
        service.name: KINDS[service.queue.kind](QueueArgs(scope, service.name, service.queue, network))
        for service in settings.services
        if service.queue is not None
    }
