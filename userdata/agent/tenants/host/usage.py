"""Who used what of the CPUs, and what of it was another's: pure arithmetic over one interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Used:
    """CPU seconds of one tenant in an interval, and what it had declared (``cpus``).

    Who has pinned CPUs does not lend: what it leaves idle nobody uses.
    """

    cpus: int
    seconds: float
    lends: bool = True


@dataclass(frozen=True)
class TenantUse:
    """CPU seconds: ``used`` in all; ``borrowed`` of it beyond its own; ``lent`` of its own to others."""

    used: float
    borrowed: float
    lent: float


def settle(used: Mapping[str, Used], interval: float) -> dict[str, TenantUse]:
    """Return each tenant's account of ``interval`` seconds.

    What is used beyond one's own was lent by those who left theirs idle, each by what it left; what the
    system's own CPUs and those of nobody gave is nobody's loan.
    """
    own = {name: one.cpus * interval for name, one in used.items()}
    borrowed = {name: max(one.seconds - own[name], 0.0) for name, one in used.items()}
    idle = {name: max(own[name] - one.seconds, 0.0) * one.lends for name, one in used.items()}
    part = min(sum(borrowed.values()) / max(sum(idle.values()), 1e-9), 1.0)
    return {name: TenantUse(one.seconds, borrowed[name], idle[name] * part) for name, one in used.items()}
