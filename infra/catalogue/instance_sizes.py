"""vCPUs and memory of the instance types of the catalogue of accelerators.

Source: EC2's ``DescribeInstanceTypes``; the EC2 instance type guide for P3dn and G4ad, as for the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class InstanceSize:
    """vCPUs and memory of an instance."""

    vcpus: int
    memory_gib: int


# fmt: off
_SIZES: Final = {
    "p3dn": "24xlarge=96/768",
    "p4d": "24xlarge=96/1152",
    "p4de": "24xlarge=96/1152",
    "p5": "4xlarge=16/256 48xlarge=192/2048",
    "p5e": "48xlarge=192/2048",
    "p5en": "48xlarge=192/2048",
    "p6-b200": "48xlarge=192/2048",
    "p6-b300": "48xlarge=192/4096",
    "g4dn": "xlarge=4/16 2xlarge=8/32 4xlarge=16/64 8xlarge=32/128 16xlarge=64/256 12xlarge=48/192 "
          "metal=96/384",
    "g4ad": "xlarge=4/16 2xlarge=8/32 4xlarge=16/64 8xlarge=32/128 16xlarge=64/256",
    "g5": "xlarge=4/16 2xlarge=8/32 4xlarge=16/64 8xlarge=32/128 16xlarge=64/256 12xlarge=48/192 "
          "24xlarge=96/384 48xlarge=192/768",
    "g5g": "xlarge=4/8 2xlarge=8/16 4xlarge=16/32 8xlarge=32/64 16xlarge=64/128 metal=64/128",
    "g6": "xlarge=4/16 2xlarge=8/32 4xlarge=16/64 8xlarge=32/128 16xlarge=64/256 12xlarge=48/192 "
          "24xlarge=96/384 48xlarge=192/768",
    "gr6": "4xlarge=16/128 8xlarge=32/256",
    "g6f": "large=2/8 xlarge=4/16 2xlarge=8/32 4xlarge=16/64",
    "gr6f": "4xlarge=16/128",
    "g6e": "xlarge=4/32 2xlarge=8/64 4xlarge=16/128 8xlarge=32/256 16xlarge=64/512 "
          "12xlarge=48/384 24xlarge=96/768 48xlarge=192/1536",
    "g7": "2xlarge=8/32 4xlarge=16/64 8xlarge=32/128 12xlarge=48/192 24xlarge=96/384 "
          "48xlarge=192/768",
    "g7e": "2xlarge=8/64 4xlarge=16/128 8xlarge=32/256 12xlarge=48/512 24xlarge=96/1024 "
          "48xlarge=192/2048",
    "trn1": "2xlarge=8/32 32xlarge=128/512",
    "trn1n": "32xlarge=128/512",
    "trn2": "3xlarge=12/128 48xlarge=192/2048",
    "f2": "6xlarge=24/256 12xlarge=48/512 48xlarge=192/2048",
}
# fmt: on


def _read(text: str) -> InstanceSize:
    vcpus, _, memory = text.partition("/")
    return InstanceSize(int(vcpus), int(memory))


INSTANCE_SIZES: Final = {
    f"{family}.{size}": _read(numbers)
    for family, text in _SIZES.items()
    for size, _, numbers in (pair.partition("=") for pair in text.split())
}
