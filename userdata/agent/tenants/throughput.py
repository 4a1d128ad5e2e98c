"""Bounds of a tenant's network and disks: its share of the machine's, in proportion to its CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of a machine: ``network`` in each direction, ``volumes`` of its EBS volumes."""

    network: int
    volumes: int


ASSUMED: Final = Bandwidth(network=1_250_000_000, volumes=500_000_000)
"""Less than any type of a shared host has, assumed where EC2 does not say: 10 Gbit/s, 500 MB/s."""

IMAGE_DISK: Final = 131_072_000
"""Bytes per second of the disk with the images: gp3's 125 MiB/s (EBS user guide, "General Purpose SSD
volumes")."""
_MIN_NETWORK: Final = 12_500_000
_MIN_DISK: Final = 8 * 2**20


@dataclass(frozen=True)
class TenantBounds:
    """Bytes per second: ``network`` in each direction; of its volume, and of reads of its image."""

    network: int
    volume: int
    image: int


def parse_bandwidth(description: Mapping[str, Any]) -> Bandwidth:
    """Return the baselines of an instance type, those of ``ASSUMED`` where they are missing.

    Source: EC2 API reference, InstanceTypeInfo: ``BaselineBandwidthInGbps``, ``BaselineThroughputInMBps``.
    """
    cards = description.get("NetworkInfo", {}).get("NetworkCards", ())
    gigabits = sum(card.get("BaselineBandwidthInGbps", 0.0) for card in cards)
    megabytes = (
        description.get("EbsInfo", {}).get("EbsOptimizedInfo", {}).get("BaselineThroughputInMBps", 0.0)
    )
    return Bandwidth(int(gigabits * 1e9 / 8) or ASSUMED.network, int(megabytes * 1e6) or ASSUMED.volumes)


def bounds_of(cpus: int, host_cpus: int, bandwidth: Bandwidth) -> TenantBounds:
    """Return the bounds of a tenant with ``cpus`` of a host's; at least 100 Mbit/s and 8 MiB/s.

    All tenants together have no more CPUs than the host, so their bounds add up to the machine's.
    """
    share = cpus / host_cpus
    return TenantBounds(
        network=max(int(bandwidth.network * share), _MIN_NETWORK),
        volume=max(int(bandwidth.volumes * share), _MIN_DISK),
        image=max(int(IMAGE_DISK * share), _MIN_DISK),
    )
