"""What the node agent must know of a service."""

from __future__ import annotations

from typing import Any, Final

from contracts.agent import config as agent
from contracts.agent.names import JOB_USER
from infra.program.agent_config import same_names
from infra.program.queues import KnownQueue, agent_queue
from infra.schema import Service

_NOTHING: Final = ("sleep", "infinity")
"""The worker of a service without image and command."""


def work(service: Service, queue: KnownQueue) -> dict[str, Any]:
    """Return a service's fields of the agent's configuration."""
    user = JOB_USER if service.command and service.image is None else ""
    if service.image is None and not service.command:
        service = service.model_copy(update={"command": _NOTHING})
    same = {**same_names(agent.Service, service), "queue": agent_queue(service, queue)}
    found = agent.Service(**same, user=user, gpus=0 if service.capacity.is_nvidia else 1)
    return {"service": found, "drain_seconds": service.drain_seconds}
