"""The catalogue of instance types with accelerators, and the machine images that boot them.

Source: EC2's ``DescribeInstanceTypes`` for counts, architectures and memory; the EC2 instance type guide for
P3dn and G4ad, which few Regions list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from contracts.sentences import alternatives

Architecture: TypeAlias = Literal["x86_64", "arm64"]
Vendor: TypeAlias = Literal["nvidia", "amd", "aws", "xilinx"]


@dataclass(frozen=True, slots=True)
class Family:
    """An instance family.

    Attributes:
        memory_gib: memory of one accelerator, rounded.
        counts: number of accelerators by instance size.
        needs_ami: the reason why AWS's Deep Learning Base AMI does not work; None if it does.
    """

    name: str
    vendor: Vendor
    architecture: Architecture
    accelerator: str
    memory_gib: int
    counts: dict[str, int]
    needs_ami: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An instance type and the number of its accelerators; a share of an accelerator counts as one."""

    name: str
    family: Family
    accelerators: int


def ami_parameter(architecture: Architecture) -> str:
    """Return the public SSM parameter of AWS's newest Deep Learning Base AMI.

    It has NVIDIA's open kernel modules.

    Source: its release notes list G4dn, G5, G6, Gr6, G6e, G7, G7e and P4 to P6 for x86_64, and G5g for arm64.
    """
    image = "base-oss-nvidia-driver-gpu-ubuntu-24.04"
    return f"/aws/service/deeplearning/ami/{architecture}/{image}/latest/ami-id"


def _counts(text: str) -> dict[str, int]:
    return {size: int(count) for size, _, count in (pair.partition("=") for pair in text.split())}


_LEGACY = "NVIDIA's open kernel modules support Turing and newer"
_SHARED = "a share of a GPU needs NVIDIA's GRID driver"
_ROCM = "it needs AMD's driver"
_NEURON = "it needs the Neuron driver"
_FPGA = "it needs the FPGA developer image"

_G_SIZES = "xlarge=1 2xlarge=1 4xlarge=1 8xlarge=1 16xlarge=1 12xlarge=4 24xlarge=4 48xlarge=8"
_G7_SIZES = "2xlarge=1 4xlarge=1 8xlarge=1 12xlarge=2 24xlarge=4 48xlarge=8"

# fmt: off
_FAMILIES: Final = (
    Family("p3dn",    "nvidia", "x86_64", "V100", 32, _counts("24xlarge=8"), _LEGACY),
    Family("p4d",     "nvidia", "x86_64", "A100", 40, _counts("24xlarge=8")),
    Family("p4de",    "nvidia", "x86_64", "A100", 80, _counts("24xlarge=8")),
    Family("p5",      "nvidia", "x86_64", "H100", 80, _counts("4xlarge=1 48xlarge=8")),
    Family("p5e",     "nvidia", "x86_64", "H200", 141, _counts("48xlarge=8")),
    Family("p5en",    "nvidia", "x86_64", "H200", 141, _counts("48xlarge=8")),
    Family("p6-b200", "nvidia", "x86_64", "B200", 179, _counts("48xlarge=8")),
    Family("p6-b300", "nvidia", "x86_64", "B300", 269, _counts("48xlarge=8")),
    Family("g4dn",    "nvidia", "x86_64", "T4", 16,
           _counts("xlarge=1 2xlarge=1 4xlarge=1 8xlarge=1 16xlarge=1 12xlarge=4 metal=8")),
    Family("g4ad",    "amd",    "x86_64", "Radeon Pro V520", 8,
           _counts("xlarge=1 2xlarge=1 4xlarge=1 8xlarge=2 16xlarge=4"), _ROCM),
    Family("g5",      "nvidia", "x86_64", "A10G", 22, _counts(_G_SIZES)),
    Family("g5g",     "nvidia", "arm64",  "T4g", 16,
           _counts("xlarge=1 2xlarge=1 4xlarge=1 8xlarge=1 16xlarge=2 metal=2")),
    Family("g6",      "nvidia", "x86_64", "L4", 22, _counts(_G_SIZES)),
    Family("gr6",     "nvidia", "x86_64", "L4", 22, _counts("4xlarge=1 8xlarge=1")),
    Family("g6f",     "nvidia", "x86_64", "L4", 3, _counts("large=1 xlarge=1 2xlarge=1 4xlarge=1"), _SHARED),
    Family("gr6f",    "nvidia", "x86_64", "L4", 11, _counts("4xlarge=1"), _SHARED),
    Family("g6e",     "nvidia", "x86_64", "L40S", 45, _counts(_G_SIZES)),
    Family("g7",      "nvidia", "x86_64", "RTX PRO 4500", 32, _counts(_G7_SIZES)),
    Family("g7e",     "nvidia", "x86_64", "RTX PRO 6000", 96, _counts(_G7_SIZES)),
    Family("trn1",    "aws",    "x86_64", "Trainium", 32, _counts("2xlarge=1 32xlarge=16"), _NEURON),
    Family("trn1n",   "aws",    "x86_64", "Trainium", 32, _counts("32xlarge=16"), _NEURON),
    Family("trn2",    "aws",    "x86_64", "Trainium2", 96, _counts("3xlarge=1 48xlarge=16"), _NEURON),
    Family("f2",      "xilinx", "x86_64", "VU47P", 80, _counts("6xlarge=1 12xlarge=2 48xlarge=8"), _FPGA),
)
# fmt: on

_UNSUPPORTED: Final = {
    "p2": "AWS has retired P2",
    "g2": "AWS has retired G2",
    "p3": "AWS retired P3 in December 2025; use g5, g6 or p4d",
    "g3": "AWS retired G3 in October 2025; use g4dn or g6",
    "g3s": "AWS retired G3 in October 2025; use g4dn or g6",
    "f1": "AWS retired F1 in December 2025; use f2",
    "p6e-gb200": "P6e is sold as Capacity Blocks, not as Spot",
    "p6e-gb300": "P6e is sold as Capacity Blocks, not as Spot",
    "trn2u": "Trn2 UltraServers are sold as Capacity Blocks, not as Spot",
}

"""Families that cannot be used, with the reason.

Every family of the catalogue is on Nitro, where a volume's serial number identifies its device.

Source: AWS's notices to customers that G3 ends on October 31, 2025 and P3 on December 20, 2025 (quoted in
https://github.com/SummitRoute/aws_breaking_changes/issues/114 and
https://github.com/zalando-incubator/kubernetes-on-aws/pull/8685). Since May 2026 ``DescribeInstanceTypes``
has no P3, and the guide's "Amazon EC2 instance types by Region" does not list it
(https://github.com/dstackai/gpuhunt/pull/233); P3dn was still sold in July 2026
(https://github.com/skypilot-org/skypilot/pull/10113). Read in November 2026.
"""

FAMILIES: Final = tuple(family.name for family in _FAMILIES)

CATALOGUE: Final = {
    f"{family.name}.{size}": InstanceType(f"{family.name}.{size}", family, count)
    for family in _FAMILIES
    for size, count in family.counts.items()
}


def lookup(name: str) -> InstanceType:
    """Return an instance type of the catalogue; raise ``ValueError`` for an unknown type."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    family = name.partition(".")[0]
    if family in _UNSUPPORTED:
        reason = _UNSUPPORTED[family]
        remedy = "" if "; use" in reason else f"; use a type of {alternatives(FAMILIES)}"
        raise ValueError(f"{name!r} is not supported: {reason}{remedy}")
    sizes = [type_name for type_name in CATALOGUE if type_name.startswith(f"{family}.")]
    near = sizes or get_close_matches(name, CATALOGUE, n=3, cutoff=0.5)
    allowed = ", ".join(near) or f"sizes of {', '.join(f.name for f in _FAMILIES)}"
    raise ValueError(f"{name!r} is not a known accelerator type; use {allowed}")


def image(name: str, ami: str | None, amis: Mapping[str, str]) -> str:
    """Return the machine image of a type: that of its family in ``amis``, else ``ami``, else AWS's AMI.

    An image is an AMI ID or the path of an SSM parameter that holds one.
    """
    family = lookup(name).family
    return amis.get(family.name) or ami or ami_parameter(family.architecture)


def check_mix(names: Iterable[str], ami: str | None, amis: Mapping[str, str] | None = None) -> None:
    """Raise ``ValueError`` unless all types have one vendor, one architecture and a machine image.

    ``ami`` is the image of all types (None: AWS's AMI), ``amis`` those of families.
    """
    types = [lookup(name) for name in names]
    platforms = {(t.family.vendor, t.family.architecture): t.name for t in reversed(types)}
    if len(platforms) > 1:
        listed = ", ".join(f"{name} is {' on '.join(platform)}" for platform, name in platforms.items())
        raise ValueError(f"{listed}; use types of one vendor and one architecture in a group")
    for instance_type in types:
        reason = instance_type.family.needs_ami
        if reason and ami is None and instance_type.family.name not in (amis or {}):
            raise ValueError(f"{instance_type.name!r} needs your own image ({reason}); set 'ami' or 'amis'")
