"""The assumptions, one module per subject."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.assumptions import (
    fleets,
    groups,
    hooks,
    identity,
    launching,
    messages,
    metadata,
    prices,
    stores,
    volumes,
    warm_pools,
    zones,
)
from gpu_spot.aws_check.assumptions.facts import catalogue, price_list
from gpu_spot.aws_check.assumptions.permissions import managed, registry, simulated, trust
from gpu_spot.aws_check.assumptions.services import brokers, clusters, drills, events, functions, operations

_MODULES: Final = (
    registry,
    launching,
    groups,
    hooks,
    warm_pools,
    zones,
    fleets,
    prices,
    messages,
    events,
    stores,
    volumes,
    metadata,
    identity,
    simulated,
    managed,
    trust,
    functions,
    operations,
    drills,
    catalogue,
    price_list,
    brokers,
    clusters,
)


def _of(module: ModuleType) -> Iterator[Assumption]:
    """Yield the assumptions of a module, also those in a tuple."""
    for value in vars(module).values():
        items = value if isinstance(value, tuple) else (value,)
        yield from (item for item in items if isinstance(item, Assumption))


ASSUMPTIONS: Final = tuple(assumption for module in _MODULES for assumption in _of(module))
