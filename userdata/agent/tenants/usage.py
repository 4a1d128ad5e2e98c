"""CPU accounting of tenants over one interval: used, borrowed and lent CPU seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CpuUsage:
    """CPU seconds of one tenant in an interval, and its declared number of ``cpus``.

    A tenant with pinned CPUs is not a lender: other tenants cannot use its idle CPUs. One with pinned CPUs or
    a cap is not a borrower: what it used beyond its CPUs is an error of the measurement.
    """

    cpus: int
    seconds: float
    is_lender: bool = True
    is_borrower: bool = True


@dataclass(frozen=True)
class CpuAccount:
    """CPU seconds: ``used`` in total, ``borrowed`` beyond the declared CPUs, ``lent`` to other tenants."""

    used: float
    borrowed: float
    lent: float


def compute_accounts(used: Mapping[str, CpuUsage], interval: float) -> dict[str, CpuAccount]:
    """Return each tenant's account of ``interval`` seconds.

    Borrowed seconds are attributed to lenders in proportion to their idle seconds; seconds on reserved or
    unallocated CPUs are lent by no tenant.
    """
    declared = {name: usage.cpus * interval for name, usage in used.items()}
    borrowed = {
        name: max(usage.seconds - declared[name], 0.0) * usage.is_borrower for name, usage in used.items()
    }
    idle = {name: max(declared[name] - usage.seconds, 0.0) * usage.is_lender for name, usage in used.items()}
    lent_share = min(sum(borrowed.values()) / max(sum(idle.values()), 1e-9), 1.0)
    return {
        name: CpuAccount(usage.seconds, borrowed[name], idle[name] * lent_share)
        for name, usage in used.items()
    }
