"""CPU weights: conversion between Docker's cgroup v1 shares and the kernel's cgroup v2 weights.

Runtimes differ: the two curves are those of runc before 1.3.2 and since (opencontainers/cgroups,
``ConvertCPUSharesToCgroupV2Value``). The actual weight is in the container's ``cpu.weight``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

PER_CPU = 40
"""Weight of one CPU: 240 CPUs stay below 10,000, the kernel's maximum; one stays far above the minimum 1."""

_MIN_SHARES, _MAX_SHARES = 2, 262_144


def weight_of(shares: int) -> int:
    """Return the weight for shares in runc since 1.3.2: 1024 become 100, the kernel's default."""
    if shares <= _MIN_SHARES:
        return 1
    if shares >= _MAX_SHARES:
        return 10_000
    power = math.log2(shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def old_weight_of(shares: int) -> int:
    """Return the weight for shares in runc before 1.3.2: 1024 become 39."""
    clamped = min(max(shares, _MIN_SHARES), _MAX_SHARES)
    return 1 + (clamped - _MIN_SHARES) * 9999 // (_MAX_SHARES - _MIN_SHARES)


def shares_for(weight: int, curve: Callable[[int], int] = weight_of) -> int:
    """Return the minimum shares for which ``curve`` gives at least ``weight`` (1 to 10,000)."""
    low, high = _MIN_SHARES, _MAX_SHARES
    while low < high:
        middle = (low + high) // 2
        if curve(middle) >= weight:
            high = middle
        else:
            low = middle + 1
    return low
