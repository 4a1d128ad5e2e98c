"""The claims, by what they are about."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.claim import Claim
from gpu_spot.aws_check.claims import (
    fleets,
    groups,
    hooks,
    identity,
    launching,
    messages,
    stores,
    volumes,
    warm_pools,
)

CLAIMS: Final[tuple[Claim, ...]] = (
    *launching.CLAIMS,
    *groups.CLAIMS,
    *hooks.CLAIMS,
    *warm_pools.CLAIMS,
    *fleets.CLAIMS,
    *messages.CLAIMS,
    *stores.CLAIMS,
    *volumes.CLAIMS,
    *identity.CLAIMS,
)
