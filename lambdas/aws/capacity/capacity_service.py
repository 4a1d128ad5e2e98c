"""The common interface of Auto Scaling groups and Spot Fleets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from lambdas.aws.budget import UNLIMITED, Budget
from lambdas.core.model import Group, GroupRole, LaunchFailure


class NotTerminatedError(RuntimeError):
    """Some instances (``instance_ids``) were not terminated."""

    def __init__(self, instance_ids: tuple[str, ...], cause: Exception) -> None:
        """``cause`` is the error of the first instance."""
        super().__init__(f"not terminated: {', '.join(instance_ids)}: {cause}")
        self.instance_ids = instance_ids


class ZoneUnavailableError(RuntimeError):
    """The requested zone has no capacity; the same capacity was requested in all zones of the group."""


class GroupNotFoundError(LookupError):
    """A group or fleet named in the parameters does not exist, or is being deleted."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group as the group lists it; ``zone`` is empty if the service does not report it.

    ``is_terminating``: the group terminates it and does not count it. ``slots``: its weight.
    """

    instance_type: str
    zone: str = ""
    is_healthy: bool = True
    is_terminating: bool = False
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Launches:
    """The newest launches: at most one known and one unknown failure, or that the newest ``succeeded``."""

    failures: tuple[LaunchFailure, ...] = ()
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class CapacityState:
    """The state of a group or fleet: desired capacity, and members by instance id.

    ``bounds``: the least and the greatest desired capacity that it accepts; ``None``: any.
    ``is_modifying``: it accepts no change now. ``suspended``: suspended processes that the group needs.
    ``on_demand``: the On-Demand part of ``desired``; ``None`` if the service computes it. ``template``: its
    launch template and types. ``warm`` and ``warm_wanted``: instances of its warm pool, and the pool's size;
    ``None``: it has none.
    """

    desired: int
    members: Mapping[str, Member]
    bounds: tuple[int, int] | None = None
    is_modifying: bool = False
    suspended: frozenset[str] = frozenset()
    on_demand: int | None = None
    template: str = ""
    warm: int = 0
    warm_wanted: int | None = None

    @property
    def lacks_capacity(self) -> bool:
        """Whether the members do not fill the desired capacity."""
        return sum(m.slots for m in self.members.values() if not m.is_terminating) < self.desired


@dataclass(frozen=True, slots=True)
class CapacityChange:
    """A change of a group or fleet: set ``capacity``, then terminate instances; ``sizes`` has their slots.

    The terminations lower the capacity by ``freed_slots``, at most by what the instances have.
    ``current`` and ``current_on_demand``: the desired capacity that the decision was based on, and its
    On-Demand part as in ``CapacityState``. ``zone``: preferred for added capacity; with ``only_there`` it is
    added there or not at all. ``skip_warm_pool``: the instances must not return to a warm pool.
    """

    current: int
    capacity: int
    to_terminate: tuple[str, ...] = ()
    freed_slots: int = 0
    zone: str = ""
    only_there: bool = False
    skip_warm_pool: bool = False
    current_on_demand: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def final_capacity(self) -> int:
        """The desired capacity after the terminations."""
        return self.capacity - self.freed_slots

    @property
    def is_increase(self) -> bool:
        """Whether the change increases the desired capacity."""
        return self.final_capacity > self.current


class CapacityService(Protocol):
    """An AWS service that maintains a desired capacity: Auto Scaling or Spot Fleet.

    ``is_eventually_consistent``: reads may return the former desired capacity for a while, and a terminated
    member stays listed after the desired capacity was lowered.
    """

    is_eventually_consistent: ClassVar[bool]

    def describe(self, names: Sequence[str]) -> dict[str, CapacityState | GroupNotFoundError]:
        """Return the state of each group or fleet; members that serve no more are left out."""
        ...

    def launch_failures(self, name: str, role: GroupRole, now: float) -> Launches:
        """Return why the newest launches failed, or that the newest succeeded."""
        ...

    def apply(self, name: str, change: CapacityChange, group: Group, budget: Budget = UNLIMITED) -> None:
        """Apply a change. Only the named instances are terminated; missing ones are not errors.

        Raises:
            NotTerminatedError: the desired capacity was set, and some instances were not terminated: AWS
                refused, or the time of the pass was over.
            ZoneUnavailableError: the desired capacity was set, and the change's zone has no capacity.
        """
        ...
