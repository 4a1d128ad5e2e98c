"""A service's queue of any kind, as the rest of the program uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import pulumi

from contracts.agent import config as agent
from contracts.broker_users import BrokerQueue, BrokerUser
from contracts.watched_queue import WatchedQueue
from infra.components.monitoring import queue_alarms
from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.monitoring.queue_alarms import QueueLimits
from infra.components.network.network import Network
from infra.iam.queue_statements import QueueAccess
from infra.schema.services.queues import AnyQueue
from infra.schema.services.queues.settings import QueueSettings
from infra.scope import Scope

SettingsT = TypeVar("SettingsT", bound=QueueSettings)


@dataclass(frozen=True)
class QueueArgs(Generic[SettingsT]):
    """``service`` is the queue's service; its workers are in ``network``.

    ``declared`` are the queues declared before, by service; ``queue_names`` those of all services.
    """

    scope: Scope
    service: str
    settings: SettingsT
    network: Network
    declared: Mapping[str, DeclaredQueue] = field(default_factory=dict)
    queue_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ManagedQueue:
    """A queue on a broker of the stack, where a function declares it and maintains ``users``.

    ``administrator`` is the name of the secret with the administrator's URL; ``monitor`` is that of the
    user who reads lengths. ``secrets`` are the names of the users' secrets.
    """

    administrator: pulumi.Input[str]
    monitor: pulumi.Input[str]
    queue: BrokerQueue
    users: Sequence[pulumi.Output[BrokerUser]]
    secrets: Sequence[pulumi.Input[str]]


@dataclass(frozen=True)
class DeclaredQueue:
    """A service's queue, created by the stack or existing. Each kind's ``declare`` returns it."""

    service: str
    settings: AnyQueue
    attributes: Mapping[str, pulumi.Input[str]]
    """Attributes known after creation, as keyword arguments of the settings' ``for_workers``."""
    watched: pulumi.Output[WatchedQueue]
    """The queue in the format of the queue watcher."""
    access: QueueAccess
    """IAM permissions by role."""
    extra_alarms: Sequence[AlarmSpec] = ()
    """Alarms in addition to those of every queue."""
    outputs: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Its part of the stack output ``queues``."""
    managed: ManagedQueue | None = None
    """The queue's users on the stack's broker; None for a queue of a service of AWS or an existing broker."""

    @property
    def for_workers(self) -> pulumi.Output[agent.Queue]:
        """The node agent's configuration of it."""
        return pulumi.Output.all(**self.attributes).apply(partial(self.settings.for_workers, self.service))

    def marked_for_workers(self, mark: str) -> agent.Queue:
        """Return the same with ``mark`` in place of each attribute."""
        return self.settings.for_workers(self.service, dict.fromkeys(self.attributes, mark))

    def alarms(self, stack: str) -> list[AlarmSpec]:
        """Return the alarms of the queue."""
        limits = QueueLimits(self.service, self.settings.max_waiting, self.settings.max_message_age_seconds)
        return [*queue_alarms.alarms(stack, limits), *self.extra_alarms]
