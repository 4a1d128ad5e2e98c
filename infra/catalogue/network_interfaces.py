"""Network interfaces of instance types with Elastic Fabric Adapters (EFA).

A cluster placement group needs no table: it takes every type of ``accelerators.py``
(``PlacementGroupInfo.SupportedStrategies``), not burstable types, Mac1 and M7i-flex, which have no
accelerators (EC2 user guide, "Placement strategies", cluster placement groups, rules and limitations).

Source for the numbers: EC2's ``DescribeInstanceTypes``, ``EfaInfo.MaximumEfaInterfaces``; Karpenter's
reference of instance types has the same (``vpc.amazonaws.com/efa``). Read in November 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from infra.catalogue.accelerators import lookup

# fmt: off
_EFA: Final = {
    "p3dn": "24xlarge=1",
    "p4d": "24xlarge=4",
    "p4de": "24xlarge=4",
    "p5": "4xlarge=1 48xlarge=32",
    "p5e": "48xlarge=32",
    "p5en": "48xlarge=16",
    "p6-b200": "48xlarge=8",
    "p6-b300": "48xlarge=16",
    "g4dn": "8xlarge=1 12xlarge=1 16xlarge=1 metal=1",
    "g5": "8xlarge=1 12xlarge=1 16xlarge=1 24xlarge=1 48xlarge=1",
    "g6": "8xlarge=1 12xlarge=1 16xlarge=1 24xlarge=1 48xlarge=1",
    "gr6": "8xlarge=1",
    "g6e": "8xlarge=1 12xlarge=1 16xlarge=1 24xlarge=2 48xlarge=4",
    "g7": "8xlarge=1 12xlarge=1 24xlarge=1 48xlarge=2",
    "g7e": "8xlarge=1 12xlarge=1 24xlarge=2 48xlarge=4",
    "trn1": "32xlarge=8",
    "trn1n": "32xlarge=16",
    "trn2": "3xlarge=1 48xlarge=16",
    "f2": "48xlarge=1",
}
# fmt: on

EFA_INTERFACES: Final = {
    f"{family}.{size}": int(count)
    for family, text in _EFA.items()
    for size, _, count in (pair.partition("=") for pair in text.split())
}
"""Number of EFA interfaces by instance type; a type that is missing has none, or is not known to have one."""

_ENA_ON_CARD_0: Final = ("p6-b300.48xlarge",)
"""Types whose network card 0 takes no EFA: 17 cards, 16 EFA interfaces (``DescribeInstanceTypes``)."""


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """A network interface of a launch: EC2's indices of its card and device, and its type."""

    card: int
    device: int
    type: Literal["interface", "efa", "efa-only"]


def efa_interfaces(name: str) -> tuple[NetworkInterface, ...]:
    """Return the network interfaces with which a type is launched to have all its EFA; empty if it has none.

    The first is the primary one. Only it has an IP address: several would need routes of their own, and AWS
    assigns no public address to an instance with several.

    Source: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards",
    its first use case; with one interface "Get started with EFA and NCCL".
    """
    count = EFA_INTERFACES.get(name, 0)
    if count == 0:
        return ()
    if count == 1:
        return (NetworkInterface(0, 0, "efa"),)
    first = 1 if name in _ENA_ON_CARD_0 else 0
    return (
        NetworkInterface(0, 0, "interface"),
        *(NetworkInterface(card, int(card == 0), "efa-only") for card in range(first, first + count)),
    )


def check_efa(types: Sequence[str]) -> None:
    """Raise ``ValueError`` unless all types have EFA, with the same interfaces, in one launch template."""
    interfaces = {name: efa_interfaces(name) for name in types}
    if missing := [name for name in types if not interfaces[name]]:
        family = lookup(missing[0]).family.name
        sizes = [name for name in EFA_INTERFACES if name.startswith(f"{family}.")]
        raise ValueError(
            f"efa is set, but {missing[0]!r} has no EFA; use types with EFA: "
            f"{', '.join(sizes or EFA_INTERFACES)}"
        )
    first = types[0]
    for name in types:
        if interfaces[name] != interfaces[first]:
            raise ValueError(
                f"efa is set, but {first!r} ({EFA_INTERFACES[first]}) and {name!r} ({EFA_INTERFACES[name]}) "
                "have different EFA interfaces; use types with the same"
            )
