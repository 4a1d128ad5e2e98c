"""The queue watcher: a function that records the length, age and consumers of queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pulumi

from contracts import names, watched_queue
from contracts.watched_queue import WatchedQueue
from infra.components.control.scheduled_function import FunctionArgs, FunctionContext, ScheduledFunction
from infra.components.network.network import Network
from infra.components.queues.declared_queue import DeclaredQueue
from infra.iam import queue_statements

_SHORT: Final = "queues"
_TIMEOUT_SECONDS: Final = 50


@dataclass(frozen=True)
class QueueWatcherArgs:
    """Arguments of ``QueueWatcher``.

    Attributes:
        queues: All of the stack, also those with workers on Kubernetes or on premises.
        network: That of brokers and proxies; None without any.
        queued_per_worker: Requests per worker of the queues that KEDA scales by, by service.
        http_services: Services whose requests are read from their proxies.
    """

    context: FunctionContext
    queues: Sequence[DeclaredQueue]
    network: Network | None
    queued_per_worker: Mapping[str, int] = field(default_factory=dict)
    http_services: Sequence[str] = ()


class QueueWatcher(pulumi.ComponentResource):
    """A function that runs each minute, with brokers or proxies in the subnets of the workers.

    There it has their security groups, so it can connect to each broker and endpoint that they use.
    """

    def __init__(self, name: str, args: QueueWatcherArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the watcher."""
        super().__init__("gpu-spot:infra:QueueWatcher", name, None, opts)
        scope, registry = args.context.scope, args.context.state.registry
        ScheduledFunction(
            name,
            FunctionArgs(
                context=args.context,
                short=_SHORT,
                description="Records the state of services' queues",
                handler=names.QUEUES_HANDLER,
                service=names.SERVICE_QUEUES,
                timeout_seconds=_TIMEOUT_SECONDS,
                statements=queue_statements.queue_watcher(
                    scope,
                    scope.physical(scope.name(_SHORT)),
                    registry.arn,
                    [queue.access for queue in args.queues],
                    is_in_network=args.network is not None,
                    reads_proxies=bool(args.http_services),
                ),
                environment={
                    names.ENV_REGISTRY_TABLE: registry.name,
                    names.ENV_QUEUES: pulumi.Output.all(*(queue.watched for queue in args.queues)).apply(
                        lambda queues: watched_queue.dumps(_watched(queues, args))
                    ),
                    **(
                        {names.ENV_INSTANCE_ARNS: scope.arn("ec2", "instance/")} if args.http_services else {}
                    ),
                },
                network=args.network,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _watched(queues: Sequence[WatchedQueue], args: QueueWatcherArgs) -> Iterator[WatchedQueue]:
    for queue in queues:
        yield replace(queue, requests_per_worker=args.queued_per_worker.get(queue.group, 0))
    for service in args.http_services:
        yield WatchedQueue(service, watched_queue.HTTP, service, "")
