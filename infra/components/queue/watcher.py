"""The function that looks at the queues: how much waits there, since when, and who reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi

from contracts import names, watched_queue
from contracts.watched_queue import WatchedQueue
from infra.components.control.scheduled_function import ScheduledFunction, ScheduledFunctionArgs
from infra.components.control.state import State
from infra.components.network.network import Network
from infra.components.queue.sqs import Sqs
from infra.iam import queue_statements
from infra.schema import Service
from infra.schema.services.sqs_queue import SqsQueue
from infra.scope import Scope

_SHORT: Final = "queues"
_TIMEOUT: Final = 50


@dataclass(frozen=True)
class QueueWatcherArgs:
    """``services`` are those with a queue; by service the names of secrets, and the queues of SQS."""

    scope: Scope
    services: Sequence[Service]
    secrets: Mapping[str, pulumi.Input[str]]
    sqs: Mapping[str, Sqs]
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
        scope, registry = args.scope, args.state.registry
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
                    scope,
                    scope.name(_SHORT),
                    registry.arn,
                    list(args.secrets.values()),
                    [one.arns.queue for one in args.sqs.values()],
                ),
                environment={
                    names.ENV_REGISTRY_TABLE: registry.name,
                    names.ENV_QUEUES: pulumi.Output.all(
                        *(_watched(service, args) for service in args.services)
                    ).apply(watched_queue.dumps),
                },
                subnet_ids=list(args.network.subnet_ids.values()),
                security_group_ids=args.network.security_group_ids,
                # Without endpoints it would only say that it sees nothing.
                ready_after=[args.network],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _watched(service: Service, args: QueueWatcherArgs) -> pulumi.Output[WatchedQueue]:
    if isinstance(service.queue, SqsQueue):
        sqs = args.sqs[service.name]
        return pulumi.Output.all(sqs.name, sqs.place).apply(
            lambda known: WatchedQueue(service.name, "sqs", *known)
        )
    queue = service.queue
    if queue is None:
        raise ValueError(f"{service.name} has no queue")
    management = (queue.existing and queue.existing.management_url) or ""
    return pulumi.Output.from_input(args.secrets[service.name]).apply(
        lambda secret: WatchedQueue(service.name, queue.kind, queue.name or service.name, secret, management)
    )
