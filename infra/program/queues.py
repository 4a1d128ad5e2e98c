"""The services' queues: they are there wherever the workers are, on instances, as pods or on premises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pulumi

from contracts.agent import config as agent
from infra.components.monitoring import broker_alarms, queue_alarms, sqs_alarms
from infra.components.monitoring.alarm import AlarmSpec
from infra.components.monitoring.broker_alarms import WatchedBroker
from infra.components.monitoring.queue_alarms import QueueBounds
from infra.components.monitoring.sqs_alarms import WatchedSqs
from infra.components.network.network import Network
from infra.components.queue.broker import Broker, BrokerArgs, broker_name
from infra.components.queue.sqs import Sqs, SqsArgs
from infra.iam.queue_statements import SqsArns
from infra.program.agent_config import same_names
from infra.schema import Queue, Service, Settings, SqsQueue
from infra.scope import Scope


@dataclass(frozen=True)
class KnownQueue:
    """What AWS names of a queue: of RabbitMQ its secret, of SQS its name and its address in ``spot_work``."""

    secret: str = ""
    url: str = ""
    name: str = ""


@dataclass(frozen=True)
class Queues:
    """The queues of ``services``, which are those that have one; by service's name.

    ``secrets`` are names: of the secrets of the stack's own ``brokers``, and of existing ones.
    """

    services: tuple[Service, ...]
    brokers: Mapping[str, Broker]
    secrets: Mapping[str, pulumi.Input[str]]
    sqs: Mapping[str, Sqs]

    def named(self, service: Service) -> dict[str, pulumi.Input[str]]:
        """Return what AWS names of a service's queue, by the fields of ``KnownQueue``."""
        named: dict[str, pulumi.Input[str]] = {}
        if (secret := self.secrets.get(service.name)) is not None:
            named["secret"] = secret
        if (sqs := self.sqs.get(service.name)) is not None:
            named |= {"url": sqs.url, "name": sqs.name}
        return named

    def known(self, service: Service) -> pulumi.Output[KnownQueue]:
        """Return the same once AWS has named it."""
        named = {"secret": "", **self.named(service)}  # Output.all of nothing is a list
        return pulumi.Output.all(**named).apply(lambda named: KnownQueue(**named))

    def sqs_arns(self, service: Service) -> SqsArns | None:
        """Return what of SQS a service's workers use."""
        sqs = self.sqs.get(service.name)
        return None if sqs is None else sqs.arns

    def alarms(self, stack: str) -> Iterator[AlarmSpec]:
        """Yield the alarms of brokers and queues."""
        for name, broker in self.brokers.items():
            yield from broker_alarms.alarms(WatchedBroker(name, broker.name))
        for service in self.services:
            if (queue := service.queue) is not None:
                most = queue.most if isinstance(queue, Queue) else 0
                yield from queue_alarms.alarms(stack, QueueBounds(service.name, most, queue.oldest_seconds))
        for name, sqs in self.sqs.items():
            yield from sqs_alarms.alarms(WatchedSqs(name, sqs.dead_name))

    def export(self, scope: Scope) -> None:
        """Export by service how a queue of the stack is reached."""
        of_brokers = {
            name: {"broker": one.name, "console": one.console_url, "secret": one.secret_name}
            for name, one in self.brokers.items()
        }
        of_sqs = {
            name: {
                "url": one.url,
                "queue": one.name,
                "deadLetters": one.dead_name,
                "callers": one.callers_policy,
            }
            for name, one in self.sqs.items()
        }
        if of_brokers or of_sqs:
            scope.export("queues", {**of_brokers, **of_sqs})


def declare(settings: Settings, scope: Scope, network: Network) -> Queues:
    """Declare the brokers of the stack's own, and the queues of SQS."""
    services = tuple(service for service in settings.services if service.queue is not None)
    brokers: dict[str, Broker] = {}
    secrets: dict[str, pulumi.Input[str]] = {}
    sqs: dict[str, Sqs] = {}
    for service in services:
        name, queue = service.name, service.queue
        if isinstance(queue, SqsQueue):
            sqs[name] = Sqs(scope.name(name, "sqs"), SqsArgs(scope, name, queue), scope.below)
        elif queue is not None and queue.own is not None:
            brokers[name] = Broker(
                broker_name(scope, name),
                BrokerArgs(
                    scope,
                    name,
                    queue.own,
                    network.vpc_id,
                    network.subnet_ids,
                    network.worker_security_group_id,
                ),
                scope.below,
            )
            secrets[name] = brokers[name].secret_name
        elif queue is not None and queue.existing is not None:
            secrets[name] = queue.existing.secret
    return Queues(services, brokers, secrets, sqs)


def agent_queue(service: Service, known: KnownQueue) -> agent.Queue | None:
    """Return the queue that a service's workers read; None without one."""
    if service.queue is None:
        return None
    if isinstance(service.queue, SqsQueue):
        return agent.Queue(name=known.name, url=known.url)
    same = {**same_names(agent.Queue, service.queue), "name": service.queue.name or service.name}
    return agent.Queue(**same, secret=known.secret)
