"""When lent CPUs are taken back from tenants that borrow; a pure function of what tenants use.

Weights alone do not suffice. The kernel divides a group's weight over the CPUs by where the group's processes
are (kernel/sched/fair.c, ``calc_group_shares``: the parts of a group add up to more than its weight while its
processes are many, new or on the move), and a neighbour of few processes gets two thirds of its part.

Whether a tenant that uses less than its CPUs wants more is not asked but tried: borrowers are limited, and if
the CPUs that this frees stay idle, the limits end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

PERIOD_SECONDS: Final = 0.25
"""Seconds between two decisions: a tenant that wakes has its CPUs again within a second."""
MIN_PART: Final = 0.9
"""Of its CPUs: a tenant that uses less lacks some, if it wants them."""
MIN_USED: Final = 0.1
"""CPUs: a tenant that uses less sleeps."""
MEMORY_SECONDS: Final = 30.0
"""How long a tenant that left freed CPUs idle counts as wanting no more than it used, unless it uses more."""


@dataclass(frozen=True)
class CpuUse:
    """A tenant's declared ``cpus``, and how many it ``used`` on average in the last period."""

    cpus: int
    used: float
    can_borrow: bool = True

    def lacks(self, demand: float) -> float:
        """Return the CPUs to free for a tenant that wants some: no more than it uses, or one."""
        goal = demand if self.used <= 1.1 * demand + MIN_USED else math.inf
        goal = min(goal, self.cpus)
        return min(goal - self.used, max(self.used, 1.0)) if MIN_USED <= self.used < MIN_PART * goal else 0.0


@dataclass(frozen=True)
class LendingState:
    """The ``limits`` of borrowers in CPUs, how many CPUs they ``freed``, and for which tenants.

    ``demands`` are the CPUs that tenants used when there were more for them, and until when that counts.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    freed: float = 0.0
    lacking: frozenset[str] = frozenset()
    demands: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def next_state(before: LendingState, uses: Mapping[str, CpuUse], idle: float, now: float) -> LendingState:
    """Return the limits until the next decision.

    A limit is never below a tenant's own CPUs, and ends when half of what the limits freed is idle.

    Args:
        before: the last decision.
        uses: what each tenant on shared CPUs used since then.
        idle: how many CPUs were idle, of those that tenants share.
        now: seconds of a monotonic clock.
    """
    limits = {name: limit for name, limit in before.limits.items() if name in uses}
    demands = {name: entry for name, entry in before.demands.items() if now < entry[1]}
    if limits and idle > before.freed / 2:
        idle_ones = {name: (uses[name].used, now + MEMORY_SECONDS) for name in before.lacking if name in uses}
        return LendingState(demands={**demands, **idle_ones})
    lacks = {name: use.lacks(demands.get(name, (math.inf, 0.0))[0]) for name, use in uses.items()}
    # What is used beyond a limit is not there to be freed: some of the kernel's work knows no quota.
    used = {n: min(use.used, limits.get(n, math.inf)) for n, use in uses.items() if use.can_borrow}
    borrowed = {name: max(cpus - uses[name].cpus, 0.0) for name, cpus in used.items()}
    missing, available = sum(lacks.values()), sum(borrowed.values())
    freed = min(missing, available)
    if freed <= 0 or idle > missing / 2:
        return replace(before, limits=limits, demands=demands)
    for name, more in borrowed.items():
        if more > 0:
            limits[name] = max(used[name] - freed * more / available, float(uses[name].cpus))
    lacking = before.lacking | {name for name, cpus in lacks.items() if cpus}
    return LendingState(limits, before.freed + freed, lacking, demands)
