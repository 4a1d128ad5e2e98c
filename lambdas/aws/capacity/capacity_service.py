"""What every kind of capacity group shows and takes, whichever AWS service stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from lambdas.core.model import Group, Refusal, Side


class NotReleasedError(RuntimeError):
    """Some instances were not let go; ``instance_ids`` are those."""

    def __init__(self, instance_ids: tuple[str, ...], cause: Exception) -> None:
        """Name them, and why the first of them stands."""
        super().__init__(f"not released: {', '.join(instance_ids)}: {cause}")
        self.instance_ids = instance_ids


class NotPlacedError(RuntimeError):
    """A zone did not give what was asked of it; the side seeks as much wherever it launches."""


class GoneError(LookupError):
    """A group or fleet that the parameters name does not exist, or no longer takes instances."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group as the group lists it; the zone is empty where the service does not tell it.

    ``given_up``: the group ends it, and no longer counts it. ``slots``: for how much it counts otherwise, its
    weight.
    """

    instance_type: str
    zone: str = ""
    healthy: bool = True
    given_up: bool = False
    slots: int = 1


@dataclass(frozen=True, slots=True)
class SideView:
    """One side as its service shows it: the desired capacity, and its members by instance id.

    ``frozen``: it takes no order now, and is no worse for it. ``suspended``: processes that it should have.
    """

    desired: int
    members: Mapping[str, Member]
    frozen: bool = False
    suspended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Order:
    """What one side is to do: a desired capacity, then let ``going`` go, which takes ``freed`` slots off it.

    ``before`` is the desired capacity that the order was decided on; what is added is sought in ``zone``.
    ``for_good``: nobody of them is to come back.
    """

    before: int
    capacity: int
    going: tuple[str, ...] = ()
    freed: int = 0
    zone: str = ""
    for_good: bool = False

    @property
    def after(self) -> int:
        """The desired capacity once they are gone."""
        return self.capacity - self.freed

    @property
    def raises(self) -> bool:
        """Say whether more is asked for than before."""
        return self.after > self.before


class CapacityService(Protocol):
    """One AWS service that holds instances at a desired capacity: Auto Scaling, or Spot Fleet.

    ``shows_late``: its desired capacity is lowered before a released member has left its list, and may be
    read as it was for a while after it was changed.
    """

    shows_late: ClassVar[bool]

    def look(self, names: Sequence[str]) -> dict[str, SideView]:
        """Return what stands behind each name; members that no longer work are left out."""
        ...

    def refusal(self, name: str, side: Side, now: float) -> Refusal | None:
        """Return the newest launch if it was refused."""
        ...

    def move(self, name: str, order: Order, group: Group) -> None:
        """Carry an order out; ends nobody whom it does not name, and the gone are no error.

        Raises ``NotReleasedError`` where the desired capacity was set and some were not let go,
        ``NotPlacedError`` where it was set and the order's zone gives nothing.
        """
        ...
