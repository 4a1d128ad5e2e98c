"""What every kind of entry is to the program: its needs, and the workloads that it declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from infra.components.capacity.capacity_group import CapacityGroup
from infra.components.monitoring.monitoring import MonitoredGroup
from infra.program.foundation import Foundation
from infra.schema import Capacity, Settings
from userdata.agent.aws.permissions import Need


@dataclass(frozen=True)
class Workload:
    """An entry's capacity group, and what those must know of it that look after all groups."""

    group: CapacityGroup
    monitored: MonitoredGroup
    has_block: bool = False

    @property
    def name(self) -> str:
        """The group's name."""
        return self.monitored.name

    @property
    def capacity(self) -> Capacity:
        """The group's capacity."""
        return self.monitored.capacity


class EntryKind(Protocol):
    """A kind of entry: the module ``kind.py`` of its folder."""

    def needs(self, settings: Settings, /) -> frozenset[Need]:
        """Return what instances of such entries are there for; the network has endpoints for it."""

    def declare(self, settings: Settings, foundation: Foundation, /) -> Sequence[Workload]:
        """Declare the stack file's entries of this kind, export what their users need next.

        Returns those that are on capacity groups.
        """
