"""The state of a stack at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from contracts.registry.tenant_wait import TenantWait
from gpu_spot.jobs.report import JobReport
from gpu_spot.status.decisions import DecisionLine
from gpu_spot.status.spot_requests import SpotRequestCount
from lambdas.core.model import Instance
from lambdas.core.money.costs import HourlyCost

InstancePhase: TypeAlias = Literal["ready", "booting", "draining"]
"""``ready``: its workers work; ``booting``: they do not report yet; ``draining``: AWS terminates it."""

WorkerPhase: TypeAlias = Literal["ready", "waiting", "draining", "silent"]
"""As in the worker registry; ``silent``: without a heartbeat for so long that it counts as lost."""

PHASES: Final[tuple[InstancePhase, ...]] = ("ready", "booting", "draining")


@dataclass(frozen=True, slots=True)
class ActiveAlarm:
    """An alarm in state ALARM since ``since`` (epoch seconds)."""

    name: str
    since: float
    description: str


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """Number of workers by origin (``aws``, ``on-premises``), version and phase."""

    origin: str
    version: str
    phase: WorkerPhase
    count: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A capacity group as the controller sees it.

    ``instances`` are the live ones, ``on_premises_slots`` the slots served by on-premises workers. ``cost``
    is None if the price of an instance is unknown. ``error`` is the reason why the group could not be read,
    else empty; ``warnings`` are other failed reads. ``spot_requests`` are the current Spot requests and those
    that ended in the last hour; None if they could not be read. ``tenant_waits`` are the tenants of a shared
    host that do not run as listed; None for another group, and if no current heartbeat says it.
    """

    name: str
    target: int = 0
    mode: str = "automatic"
    run: str = ""
    instances: tuple[Instance, ...] = ()
    on_premises_slots: int = 0
    workers: tuple[WorkerCount, ...] = ()
    cost: HourlyCost | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()
    spot_requests: tuple[SpotRequestCount, ...] | None = None
    tenant_waits: tuple[TenantWait, ...] | None = None

    def slots(self, phase: InstancePhase) -> int:
        """Return the slots of the instances in a phase."""
        return sum(instance.slots for instance in self.instances if phase_of(instance) == phase)

    @property
    def missing_slots(self) -> int:
        """Slots of the target that are not ready."""
        return max(0, self.target - self.slots("ready") - self.on_premises_slots)


@dataclass(frozen=True, slots=True)
class DeclaredEntries:
    """Entries that only the stack file knows: tenants by shared host, and entries on Kubernetes."""

    tenants: Mapping[str, tuple[str, ...]]
    on_kubernetes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StackSnapshot:
    """A stack at ``now`` (epoch seconds). ``calls`` is the number of AWS API calls for this snapshot."""

    stack: str
    region: str
    now: float
    alarms: tuple[ActiveAlarm, ...]
    groups: tuple[GroupSnapshot, ...]
    decisions: tuple[DecisionLine, ...]
    jobs: tuple[JobReport, ...]
    declared: DeclaredEntries
    calls: int

    @property
    def is_healthy(self) -> bool:
        """Whether no alarm is active and every group could be read."""
        return not self.alarms and not any(group.error for group in self.groups)

    @property
    def cost(self) -> HourlyCost | None:
        """Cost of all groups per hour, None if the cost of a group is unknown."""
        costs = [group.cost for group in self.groups if group.cost is not None]
        if len(costs) < len(self.groups):
            return None
        return HourlyCost(sum(cost.paid for cost in costs), sum(cost.on_demand for cost in costs))


def phase_of(instance: Instance) -> InstancePhase:
    """Return the phase of an instance."""
    if instance.deadline is not None:
        return "draining"
    return "booting" if instance.ready_since is None else "ready"
