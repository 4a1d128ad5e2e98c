"""The checks, in the order in which they are shown: a module each."""

from __future__ import annotations

from typing import Final

from gpu_spot.preflight.checks import (
    billing,
    brokers,
    disks,
    encryption,
    endpoints,
    github,
    images,
    limits,
    money,
    offerings,
    permissions,
    quotas,
    reservations,
    service_roles,
    sizes,
    taken_names,
)
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
    brokers,
    taken_names,
    github,
    billing,
    money,
)
