"""The node agent's configuration of a service."""

from __future__ import annotations

from typing import Any, Final

import pulumi

from contracts.agent import config as agent
from contracts.agent.names import JOB_USER
from infra.program.foundation import Foundation
from infra.schema import Service

_IDLE_COMMAND: Final = ("sleep", "infinity")
"""Command of the workers of a service without image and command."""


def work(service: Service, queue: agent.Queue | None) -> dict[str, Any]:
    """Return the fields of the node agent's configuration for a service."""
    user = JOB_USER if service.command and service.image is None else ""
    is_idle = service.image is None and not service.command
    agent_service = agent.Service(
        slots_per_gpu=service.slots_per_gpu,
        gpus_per_worker=service.gpus_per_worker,
        gpus=0 if service.capacity.is_nvidia else 1,
        image=service.image,
        command=_IDLE_COMMAND if is_idle else service.command,
        environment=service.environment,
        secrets=service.secrets,
        shm_gib=service.shm_gib,
        read_only_root=service.read_only_root,
        user=user,
        reports_readiness=service.reports_readiness,
        queue=queue,
        http=service.http.workers if service.http is not None else None,
    )
    return {"service": agent_service, "drain_seconds": service.drain_seconds}


def queue_of(service: Service, foundation: Foundation) -> pulumi.Output[agent.Queue | None]:
    """Return the node agent's configuration of a service's queue; None if the service has no queue."""
    queue = foundation.queues.get(service.name)
    return pulumi.Output.from_input(None) if queue is None else queue.for_workers
