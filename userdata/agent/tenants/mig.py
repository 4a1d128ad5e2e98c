"""The MIG profiles of a GPU, without those with media extensions (``+me``), which tenants cannot request.

Source: NVIDIA Multi-Instance GPU user guide, "Supported MIG Profiles", "Placement".
"""

from __future__ import annotations

from typing import Final

from userdata.agent.tenants.model import MigProfile

# Compute slices of a profile, its share of the eight memory slices, and its possible first slices.
_PLACEMENTS: Final = (
    ("1g", 1, (0, 1, 2, 3, 4, 5, 6)),
    ("1g", 2, (0, 2, 4, 6)),
    ("2g", 2, (0, 2, 4)),
    ("3g", 4, (0, 4)),
    ("4g", 4, (0,)),
    ("7g", 8, (0,)),
)
# By chip and memory in GiB: the gigabytes in the profile's name for one, two, four and eight memory slices.
_GIGABYTES: Final = {
    ("A100", 40): {1: 5, 2: 10, 4: 20, 8: 40},
    ("A100", 80): {1: 10, 2: 20, 4: 40, 8: 80},
    ("H100", 80): {1: 10, 2: 20, 4: 40, 8: 80},
    ("H200", 141): {1: 18, 2: 35, 4: 71, 8: 141},
    ("B200", 179): {1: 23, 2: 45, 4: 90, 8: 180},
    ("B300", 269): {1: 34, 2: 67, 4: 135, 8: 269},
}


def profiles(product: str, memory_gib: int) -> tuple[MigProfile, ...]:
    """Return the MIG profiles of a GPU by product name (of the driver or the instance catalogue) and memory.

    Empty if the GPU has no MIG support, such as T4, A10G, L4, L40S and V100.
    """
    near = [key for key in _GIGABYTES if key[0] in product]
    if not near:
        return ()
    named = _GIGABYTES[min(near, key=lambda key: abs(key[1] - memory_gib))]
    return tuple(
        MigProfile(f"{compute}.{named[size]}gb", size, starts) for compute, size, starts in _PLACEMENTS
    )
