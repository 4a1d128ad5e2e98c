"""The assumptions, one module per subject."""

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

_MODULES: Final = (
    launching,
    groups,
    hooks,
    warm_pools,
    zones,
    fleets,
    prices,
    messages,
    stores,
    volumes,
    identity,
)

ASSUMPTIONS: Final = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Assumption)
)
