"""What was seen of a stack at one moment, in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gpu_spot.jobs.account import JobAccount
from gpu_spot.status.decisions import DecisionLine
from lambdas.core.model import Instance
from lambdas.core.money.costs import HourlyCost

InstancePhase: TypeAlias = Literal["ready", "booting", "draining"]
"""What an instance does: its workers work, are not heard yet, or end because AWS takes it."""

WorkerPhase: TypeAlias = Literal["ready", "waiting", "draining", "silent"]
"""As in the worker registry; ``silent``: not heard for so long that it counts as missing."""

PHASES: Final[tuple[InstancePhase, ...]] = ("ready", "booting", "draining")


@dataclass(frozen=True, slots=True)
class AlarmSeen:
    """An alarm that rings, since when (epoch seconds), and what it says."""

    name: str
    since: float
    says: str


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """How many workers of one version do the same, by where they are (``aws``, ``on-premises``)."""

    origin: str
    version: str
    phase: WorkerPhase
    count: int


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One capacity group as the controller sees it.

    ``instances`` are the live ones, ``elsewhere`` for how many slots workers on premises stand in. ``cost``
    is None where the price of one of its instances is not known. ``trouble`` says why nothing could be seen
    of it, empty where it was; ``unread`` what else could not be read. ``drain_seconds`` before its end an
    instance takes no more work.
    """

    name: str
    target: int = 0
    mode: str = "automatic"
    run: str = ""
    instances: tuple[Instance, ...] = ()
    elsewhere: int = 0
    workers: tuple[WorkersSeen, ...] = ()
    cost: HourlyCost | None = None
    trouble: str = ""
    unread: tuple[str, ...] = ()
    drain_seconds: float = 0.0

    def serving(self, now: float) -> int:
        """Return how many slots of the target are served at ``now``, by who stays and by who still works."""
        working = (
            one.slots
            for one in self.instances
            if one.ready_since is not None
            and (one.deadline is None or one.deadline - self.drain_seconds > now)
        )
        return min(self.target, sum(working) + self.elsewhere)

    def slots(self, phase: InstancePhase) -> int:
        """Return for how many slots of the target the instances in a phase count."""
        return sum(one.slots for one in self.instances if phase_of(one) == phase)

    @property
    def missing(self) -> int:
        """How many slots of the target nobody serves now."""
        return max(0, self.target - self.slots("ready") - self.elsewhere)


@dataclass(frozen=True, slots=True)
class DeclaredEntries:
    """What only the stack file tells: tenants by shared host, and entries on Kubernetes."""

    tenants: Mapping[str, tuple[str, ...]]
    on_kubernetes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StackSeen:
    """A stack at ``now`` (epoch seconds). ``calls`` is how often AWS was asked for this view."""

    stack: str
    region: str
    now: float
    alarms: tuple[AlarmSeen, ...]
    groups: tuple[GroupSeen, ...]
    decisions: tuple[DecisionLine, ...]
    jobs: tuple[JobAccount, ...]
    declared: DeclaredEntries
    calls: int

    @property
    def is_well(self) -> bool:
        """Whether no alarm rings, and every group could be seen."""
        return not self.alarms and not any(group.trouble for group in self.groups)

    @property
    def cost(self) -> HourlyCost | None:
        """What all groups cost an hour, None where that of one is not known."""
        known = [group.cost for group in self.groups if group.cost is not None]
        if len(known) < len(self.groups):
            return None
        return HourlyCost(sum(one.paid for one in known), sum(one.on_demand for one in known))


def phase_of(instance: Instance) -> InstancePhase:
    """Return what an instance does."""
    if instance.deadline is not None:
        return "draining"
    return "booting" if instance.ready_since is None else "ready"
