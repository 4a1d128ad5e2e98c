"""What the node agent must know of a service."""

from __future__ import annotations

from typing import Any, Final

import pulumi

from contracts.agent import config as agent
from contracts.agent.names import JOB_USER
from infra.program.agent_config import same_names
from infra.program.foundation import Foundation
from infra.schema import Service

_NOTHING: Final = ("sleep", "infinity")
"""The worker of a service without image and command."""


def work(service: Service, queue: agent.Queue | None) -> dict[str, Any]:
    """Return a service's fields of the agent's configuration."""
    user = JOB_USER if service.command and service.image is None else ""
    if service.image is None and not service.command:
        service = service.model_copy(update={"command": _NOTHING})
    same = {**same_names(agent.Service, service), "queue": queue}
    found = agent.Service(**same, user=user, gpus=0 if service.capacity.is_nvidia else 1)
    return {"service": found, "drain_seconds": service.drain_seconds}


def queue_of(service: Service, foundation: Foundation) -> pulumi.Output[agent.Queue | None]:
    """Return the queue that a service's workers read, once AWS has named it; None without one."""
    queue = foundation.queues.get(service.name)
    return pulumi.Output.from_input(None) if queue is None else queue.for_workers
