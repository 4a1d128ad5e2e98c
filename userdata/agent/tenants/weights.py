"""CPU weights: Docker takes shares of cgroup v1, the kernel weights of v2, and runtimes differ between.

The two curves are those of runc before 1.3.2 and from it on (opencontainers/cgroups, ``ConvertCPUSharesTo-
CgroupV2Value``). What a runtime made of it stands in the container's ``cpu.weight``: read it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

PER_CPU = 40
"""Weight of one CPU: 240 of them stay below 10,000, the kernel's most, one stays far above 1."""

_LEAST_SHARES, _MOST_SHARES = 2, 262_144


def weight_of(shares: int) -> int:
    """Return the weight that runc from 1.3.2 on makes of shares: 1024 are 100, the kernel's default."""
    if shares <= _LEAST_SHARES:
        return 1
    if shares >= _MOST_SHARES:
        return 10_000
    power = math.log2(shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def old_weight_of(shares: int) -> int:
    """Return the weight that runc before 1.3.2 makes of shares: 1024 are 39."""
    held = min(max(shares, _LEAST_SHARES), _MOST_SHARES)
    return 1 + (held - _LEAST_SHARES) * 9999 // (_MOST_SHARES - _LEAST_SHARES)


def shares_for(weight: int, curve: Callable[[int], int] = weight_of) -> int:
    """Return the fewest shares of which ``curve`` makes at least ``weight``, which is 1 to 10,000."""
    low, high = _LEAST_SHARES, _MOST_SHARES
    while low < high:
        middle = (low + high) // 2
        if curve(middle) >= weight:
            high = middle
        else:
            low = middle + 1
    return low
