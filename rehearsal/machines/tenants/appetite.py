"""What tenants want of the CPUs over time, and what the kernel gives them: pure arithmetic.

Appetites are made up, by who a tenant is: only that they differ matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Pattern = Literal["steady", "greedy", "office"]
"""``steady``: four fifths of its own. ``greedy``: three times its own for six hours, then nothing for two.
``office``: from 8 to 18 UTC, each other quarter of an hour, twice its own; a little else."""

STEP: Final = 900.0
"""An appetite stays the same from one multiple of it to the next, in epoch seconds."""

_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class CpuDemand:
    """A tenant's at one moment: its control group's ``weight``, and the CPUs that it ``wants``."""

    weight: int
    wants: float


def wants(pattern: Pattern, cpus: float, at: float) -> float:
    """Return how many CPUs a tenant with ``cpus`` of its own could keep busy at ``at`` (epoch seconds)."""
    hour = at / _HOUR % 24
    match pattern:
        case "steady":
            return 0.8 * cpus
        case "greedy":
            return 3.0 * cpus if hour % 8 < 6 else 0.0
        case "office":
            is_busy = 8 <= hour < 18 and int(at // STEP) % 2 == 0
            return (2.0 if is_busy else 0.1) * cpus


def divide(cpus: float, demands: Mapping[str, CpuDemand]) -> dict[str, float]:
    """Return who gets how many of ``cpus`` that all may run on.

    In proportion to the weights among those who want, nobody more than it wants, nothing idle while somebody
    wants it (cgroup v2, "Controllers", "Weights" and "CPU": work-conserving).
    """
    got = dict.fromkeys(demands, 0.0)
    hungry = {name: one for name, one in demands.items() if one.wants > 0}
    while hungry and cpus > 0:
        each = cpus / sum(one.weight for one in hungry.values())
        full = {name for name, one in hungry.items() if one.wants <= one.weight * each}
        if not full:
            return got | {name: one.weight * each for name, one in hungry.items()}
        for name in full:
            got[name] = hungry.pop(name).wants
            cpus -= got[name]
    return got
