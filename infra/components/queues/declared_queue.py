"""What the stack knows of a service's queue, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import pulumi

from contracts.agent import config as agent
from contracts.watched_queue import WatchedQueue
from infra.components.monitoring import queue_alarms
from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.monitoring.queue_alarms import QueueBounds
from infra.components.network.network import Network
from infra.iam.queue_statements import QueueAccess
from infra.schema.services.queues.kinds import AnyQueue
from infra.schema.services.queues.settings import QueueSettings
from infra.scope import Scope

SettingsT = TypeVar("SettingsT", bound=QueueSettings)


@dataclass(frozen=True)
class QueueArgs(Generic[SettingsT]):
    """``service`` names whose queue it is; its workers are in ``network``."""

    scope: Scope
    service: str
    settings: SettingsT
    network: Network


@dataclass(frozen=True)
class DeclaredQueue:
    """A service's queue, declared by the stack or found: each kind's ``declare`` returns one."""

    service: str
    settings: AnyQueue
    found: Mapping[str, pulumi.Input[str]]
    """What AWS names of it, as ``for_workers`` of its settings takes it."""
    watched: pulumi.Output[WatchedQueue]
    """Where the queue watcher finds it."""
    access: QueueAccess
    """What it asks of IAM."""
    own_alarms: Sequence[AlarmSpec] = ()
    """Beside those that every queue has."""
    outputs: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """How others reach it: its part of the output ``queues``; none without."""

    @property
    def for_workers(self) -> pulumi.Output[agent.Queue]:
        """What the agent's configuration says of it."""
        return pulumi.Output.all(**self.found).apply(partial(self.settings.for_workers, self.service))

    def marked_for_workers(self, mark: str) -> agent.Queue:
        """Return the same with ``mark`` wherever AWS has a name for something."""
        return self.settings.for_workers(self.service, dict.fromkeys(self.found, mark))

    def alarms(self, stack: str) -> list[AlarmSpec]:
        """Return all that ring because of it."""
        bounds = QueueBounds(self.service, self.settings.most_waiting, self.settings.oldest_seconds)
        return [*queue_alarms.alarms(stack, bounds), *self.own_alarms]
