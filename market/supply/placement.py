"""Mapping of traces to capacity pools: to those of a group, or by the trace's name."""

from __future__ import annotations

from collections.abc import Sequence

from lambdas.core.model import Pool
from market.supply.trace import TraceError


def assign(traces: Sequence[str], zones: Sequence[str], instance_types: Sequence[str]) -> tuple[Pool, ...]:
    """Return a pool for each trace name: in the zone of its prefix if the group has it, else any.

    Pools are assigned in order of type, then zone. Raises ``TraceError`` for more traces than pools.
    """
    free = [Pool(instance_type, zone) for instance_type in instance_types for zone in zones]
    if len(traces) > len(free):
        raise TraceError(
            f"{len(traces)} traces, but the group has only {len(free)} capacity pools "
            f"({len(zones)} zones × {len(instance_types)} instance types)"
        )
    chosen: dict[int, Pool] = {}
    for index, name in enumerate(traces):
        at_home = next((pool for pool in free if name.startswith(pool.zone)), None)
        if at_home is not None:
            chosen[index] = at_home
            free.remove(at_home)
    for index in range(len(traces)):
        if index not in chosen:
            chosen[index] = free.pop(0)
    return tuple(chosen[index] for index in range(len(traces)))


def named(traces: Sequence[str]) -> tuple[Pool, ...]:
    """Return the pool of each trace by its name: zone, ``_``, instance type (default ``any``)."""
    parts = [name.partition("_") for name in traces]
    return tuple(Pool(instance_type or "any", zone) for zone, _, instance_type in parts)
