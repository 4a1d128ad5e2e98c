"""Which parts a GPU can be cut into (NVIDIA's multi-instance guide, "Supported MIG Profiles", "Placement").

Not in it: profiles with media extensions (``+me``), which no tenant can ask for.
"""

from __future__ import annotations

from typing import Final

from userdata.agent.tenants.model import MigProfile

# Of eight memory slices: how many a profile takes, and where it may begin.
_PLACES: Final = (
    ("1g", 1, (0, 1, 2, 3, 4, 5, 6)),
    ("1g", 2, (0, 2, 4, 6)),
    ("2g", 2, (0, 2, 4)),
    ("3g", 4, (0, 4)),
    ("4g", 4, (0,)),
    ("7g", 8, (0,)),
)
# By chip and its memory in GiB: the gigabytes of one, two, four and eight slices, as profiles are named.
_NAMED: Final = {
    ("A100", 40): {1: 5, 2: 10, 4: 20, 8: 40},
    ("A100", 80): {1: 10, 2: 20, 4: 40, 8: 80},
    ("H100", 80): {1: 10, 2: 20, 4: 40, 8: 80},
    ("H200", 141): {1: 18, 2: 35, 4: 71, 8: 141},
    ("B200", 179): {1: 23, 2: 45, 4: 90, 8: 180},
    ("B300", 269): {1: 34, 2: 67, 4: 135, 8: 269},
}


def profiles(product: str, memory_gib: int) -> tuple[MigProfile, ...]:
    """Return the profiles of a GPU by its product's name, as the driver or the catalogue has it, and memory.

    Empty where it cannot be cut: T4, A10G, L4, L40S and V100 among others.
    """
    near = [key for key in _NAMED if key[0] in product]
    if not near:
        return ()
    named = _NAMED[min(near, key=lambda key: abs(key[1] - memory_gib))]
    return tuple(MigProfile(f"{compute}.{named[size]}gb", size, starts) for compute, size, starts in _PLACES)
