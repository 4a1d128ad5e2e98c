"""The assumptions, by what they are about."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.assumptions import (
    fleets,
    groups,
    hooks,
    identity,
    launching,
    messages,
    prices,
    stores,
    volumes,
    warm_pools,
    zones,
)

ASSUMPTIONS: Final[tuple[Assumption, ...]] = (
    *launching.ASSUMPTIONS,
    *groups.ASSUMPTIONS,
    *hooks.ASSUMPTIONS,
    *warm_pools.ASSUMPTIONS,
    *zones.ASSUMPTIONS,
    *fleets.ASSUMPTIONS,
    *prices.ASSUMPTIONS,
    *messages.ASSUMPTIONS,
    *stores.ASSUMPTIONS,
    *volumes.ASSUMPTIONS,
    *identity.ASSUMPTIONS,
)
