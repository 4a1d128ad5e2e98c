"""The checks, in the order in which they are shown: a module each."""

from __future__ import annotations

from typing import Final

from gpu_spot.preflight.checks import (
    disks,
    encryption,
    endpoints,
    images,
    limits,
    money,
    offerings,
    queues,
    reservations,
    sizes,
)
from gpu_spot.preflight.checks.account import billing, github, permissions, quotas, service_roles, taken_names
from gpu_spot.preflight.remark import Check

CHECKS: Final[tuple[Check, ...]] = (
    permissions,
    service_roles,
    quotas,
    disks,
    limits,
    offerings,
    sizes,
    reservations,
    images,
    encryption,
    endpoints,
    queues,
    taken_names,
    github,
    billing,
    money,
)
