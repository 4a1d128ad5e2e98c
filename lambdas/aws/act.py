"""Carry decisions out: the only place that changes capacity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.aws.settings import GroupSettings
from lambdas.aws.side import CapacityService
from lambdas.core.model import Action, Alarm, Release, SetDesired


@dataclass(frozen=True, slots=True)
class Actor:
    """Acts on the sides of groups; ``capacity`` by kind of side."""

    capacity: Mapping[str, CapacityService]

    def perform(self, action: Action, settings: GroupSettings) -> None:
        """Carry out one action; an alarm changes nothing in AWS. Repeating an action changes nothing more."""
        match action:
            case SetDesired(side, capacity):
                handle = settings.sides[side]
                self.capacity[handle.kind].set_desired(handle.name, capacity, settings.group)
            case Release(side, instance_ids):
                handle = settings.sides[side]
                self.capacity[handle.kind].release(handle.name, instance_ids, settings.group)
            case Alarm():
                pass
