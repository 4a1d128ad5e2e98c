"""What every kind of capacity group shows and takes, whichever AWS service stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lambdas.core.model import Group, Refusal, Side


class GoneError(LookupError):
    """A group or fleet that the parameters name does not exist, or no longer takes instances."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group as the group lists it; the zone is empty where the service does not tell it.

    ``given_up``: the group ends it, and no longer counts it.
    """

    instance_type: str
    zone: str = ""
    healthy: bool = True
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class SideView:
    """One side as its service shows it: the desired capacity, and its members by instance id."""

    desired: int
    members: Mapping[str, Member]


class CapacityService(Protocol):
    """One AWS service that holds instances at a desired capacity: Auto Scaling, or Spot Fleet."""

    def look(self, names: Sequence[str]) -> dict[str, SideView]:
        """Return what stands behind each name; members that no longer work are left out."""
        ...

    def refusal(self, name: str, side: Side, now: float) -> Refusal | None:
        """Return the newest launch if it was refused."""
        ...

    def set_desired(self, name: str, capacity: int, group: Group) -> None:
        """Set the desired capacity; terminates nobody."""
        ...

    def release(self, name: str, instance_ids: Sequence[str], group: Group) -> None:
        """Terminate these members and lower the desired capacity by as many; the gone are no error."""
        ...
