"""The function that looks at the queues: how much waits there, since when, and who reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi

from infra.components.control.scheduled_function import ScheduledFunction, ScheduledFunctionArgs
from infra.components.control.state import State
from infra.components.network.network import Network
from infra.iam import queue_statements
from infra.schema import Service
from infra.scope import Scope
from lambdas.core import names, watched_queue
from lambdas.core.watched_queue import WatchedQueue

_SHORT: Final = "queues"
_TIMEOUT: Final = 50


@dataclass(frozen=True)
class QueueWatcherArgs:
    """``services`` are those with a queue, ``places`` the names of these queues' secrets, by service."""

    scope: Scope
    services: Sequence[Service]
    places: Mapping[str, pulumi.Input[str]]
    network: Network
    state: State
    log_retention_days: int


class QueueWatcher(pulumi.ComponentResource):
    """Produces a function in the private subnets that runs each minute.

    It has the workers' security groups: it reaches a broker, and the endpoints, wherever they do.
    """

    def __init__(self, name: str, args: QueueWatcherArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the watcher."""
        super().__init__("gpu-spot:infra:QueueWatcher", name, None, opts)
        scope, places = args.scope, [args.places[service.name] for service in args.services]
        ScheduledFunction(
            name,
            ScheduledFunctionArgs(
                scope=scope,
                short=_SHORT,
                description="Looks at the services' queues",
                handler=names.QUEUES_HANDLER,
                service=names.SERVICE_QUEUES,
                timeout=_TIMEOUT,
                log_retention_days=args.log_retention_days,
                allowed=queue_statements.queue_watcher(
                    scope, scope.name(_SHORT), args.state.registry.arn, places
                ),
                environment={
                    names.ENV_REGISTRY_TABLE: args.state.registry.name,
                    names.ENV_QUEUES: pulumi.Output.all(*places).apply(
                        lambda known: watched_queue.dumps(map(_watched, args.services, known))
                    ),
                },
                subnet_ids=list(args.network.subnet_ids.values()),
                security_group_ids=args.network.security_group_ids,
                # Without endpoints it would only say that it sees nothing.
                ready_after=[args.network],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _watched(service: Service, place: str) -> WatchedQueue:
    queue = service.queue
    if queue is None:
        raise ValueError(f"{service.name} has no queue")
    management = queue.existing.management_url if queue.existing else None
    return WatchedQueue(service.name, queue.kind, queue.name or service.name, place, management or "")
