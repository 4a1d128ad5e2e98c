"""The checks in display order, one module each."""

from __future__ import annotations

from typing import Final

from gpu_spot.preflight.check_result import Check
from gpu_spot.preflight.checks import (
    clusters,
    disks,
    encryption,
    endpoints,
    http,
    images,
    limits,
    monthly_cost,
    offerings,
    queues,
    region_services,
    request_logs,
    reservations,
    sizes,
    volumes,
)
from gpu_spot.preflight.checks.account import (
    billing,
    github,
    name_conflicts,
    permissions,
    quotas,
    secrets,
    service_roles,
)

CHECKS: Final[tuple[Check, ...]] = (
    permissions,
    service_roles,
    quotas,
    disks,
    limits,
    region_services,
    offerings,
    sizes,
    reservations,
    images,
    encryption,
    volumes,
    endpoints,
    queues,
    secrets,
    request_logs,
    http,
    clusters,
    name_conflicts,
    github,
    billing,
    monthly_cost,
)
