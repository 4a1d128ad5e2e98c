"""The checks by their name in the report, in display order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_spot.preflight.check_result import Check
from gpu_spot.preflight.checks import (
    agents,
    clusters,
    encryption,
    endpoints,
    images,
    monthly_cost,
    names,
    offerings,
    permissions,
    quotas,
    request_logs,
    reservations,
    secrets,
    vcpus,
    volumes,
)

CHECKS: Final[Mapping[str, Check]] = {
    "permissions": permissions.run,
    "service-linked roles": permissions.service_roles,
    "vCPU quotas": vcpus.run,
    "storage and interface quotas": quotas.run,
    "group sizes": quotas.sizes,
    "zones and instance types": offerings.run,
    "reservations": reservations.run,
    "machine images": images.run,
    "container images": images.containers,
    "volume encryption key": encryption.run,
    "volumes without a job": volumes.run,
    "endpoints": endpoints.run,
    "queues": secrets.queues,
    "secrets": secrets.run,
    "request logs": request_logs.run,
    "Kubernetes": clusters.run,
    "Kubernetes versions": clusters.pins,
    "snapshots of pods": clusters.snapshots,
    "names": names.run,
    "node agents": agents.run,
    "monthly cost": monthly_cost.run,
}
