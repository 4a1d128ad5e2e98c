"""The interface of the kinds of entries, and the workloads that they declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from infra.components.capacity.capacity_group import CapacityGroup
from infra.components.monitoring.monitoring import MonitoredGroup
from infra.program.foundation import Foundation
from infra.schema import Capacity, Settings
from userdata.agent.aws.permissions import Need


@dataclass(frozen=True)
class Workload:
    """An entry's capacity group, with its monitoring and operational properties, and buckets of its own."""

    group: CapacityGroup
    monitored: MonitoredGroup
    has_block: bool = False
    bucket_arns: Sequence[pulumi.Input[str]] = ()

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.monitored.name

    @property
    def capacity(self) -> Capacity:
        """Capacity of the group."""
        return self.monitored.capacity


class EntryKind(Protocol):
    """A kind of entry: the module ``kind.py`` of its package."""

    def needs(self, settings: Settings, /) -> frozenset[Need]:
        """Return the needs of the instances of all entries of this kind."""

    def declare(self, settings: Settings, foundation: Foundation, /) -> Sequence[Workload]:
        """Declare the entries of this kind and export their outputs.

        Returns:
            The entries that have a capacity group.
        """
