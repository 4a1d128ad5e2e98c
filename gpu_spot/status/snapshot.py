"""The state of a stack at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from contracts.group.control import Mode
from contracts.registry.tenant_wait import TenantWait
from gpu_spot.jobs.report import JobReport
from gpu_spot.status.decisions import DecisionLine
from gpu_spot.status.images import RunningImage
from gpu_spot.status.spot_requests import SpotRequestCount
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS
from lambdas.core.model import Instance
from lambdas.core.money.costs import HourlyCost

InstancePhase: TypeAlias = Literal["ready", "booting", "draining"]
"""As the controller counts: ``ready``: all its workers report and take work, with a notice until the drain
begins; ``booting``: they do not all report; ``draining``: its workers take no more work."""

GroupCondition: TypeAlias = Literal[
    "unreadable", "no target", "ready", "hand-over", "starting", "waiting for Spot", "controller off", "short"
]
"""``hand-over``: interrupted instances serve still, or successors that boot cover what is missing;
``starting``: they do, but no instance serves; ``waiting for Spot``: a job has time until its deadline;
``controller off``: slots are missing and the mode is not automatic; ``short``: slots are missing."""

HEALTHY: Final[frozenset[GroupCondition]] = frozenset({"no target", "ready", "hand-over", "waiting for Spot"})

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
    """A capacity group as the controller sees it at ``now`` (epoch seconds).

    ``instances`` are the live ones, ``on_premises_slots`` the slots served by on-premises workers. ``cost``
    is None if the price of an instance is unknown. ``error`` is the reason why the group could not be read,
    else empty; ``warnings`` are other failed reads. ``spot_requests`` are the current Spot requests and those
    that ended in the last hour, ``images`` those of its instances; None if they could not be read.
    ``tenant_waits`` are the tenants of a shared host that do not run as listed; None for another group, and
    if no current heartbeat says it.
    ``is_waiting`` for Spot is a job that has time until its deadline; a group that ``moves`` hands one work
    over, so that none serves meanwhile. ``warm_pool_lacks_since`` (epoch seconds) is since when the warm pool
    is below its size, None if it is not; ``warm_pool_lacks`` says what lacks, as far as it is known.
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
    images: tuple[RunningImage, ...] | None = None
    tenant_waits: tuple[TenantWait, ...] | None = None
    now: float = 0.0
    drain_seconds: float = 0.0
    is_waiting: bool = False
    moves: bool = False
    warm_pool_lacks_since: float | None = None
    warm_pool_lacks: str = ""

    def phase_of(self, instance: Instance) -> InstancePhase:
        """Return the phase of an instance now."""
        return self._phase_at(instance, self.now)

    def _phase_at(self, instance: Instance, now: float) -> InstancePhase:
        if instance.deadline is not None and instance.deadline - self.drain_seconds <= now:
            return "draining"
        return "booting" if instance.ready_since is None else "ready"

    def slots(self, phase: InstancePhase) -> int:
        """Return the slots of the instances in a phase."""
        return sum(instance.slots for instance in self.instances if self.phase_of(instance) == phase)

    def serving_slots(self, now: float) -> int:
        """Return the slots that serve at a time, on premises included."""
        ready = sum(i.slots for i in self.instances if self._phase_at(i, now) == "ready")
        return ready + self.on_premises_slots

    @property
    def interrupted_slots(self) -> int:
        """Slots that serve and have a notice."""
        return sum(i.slots for i in self.instances if i.deadline is not None and self.phase_of(i) == "ready")

    @property
    def missing_slots(self) -> int:
        """Slots of the target that are not ready, like the target minus the metric ``Ready``."""
        return max(0, self.target - self.serving_slots(self.now))

    @property
    def condition(self) -> GroupCondition:
        """What the counts mean. A boot counts as long as it takes at most ``MAX_BOOT_SECONDS``."""
        if self.error:
            return "unreadable"
        if not self.target:
            return "no target"
        if not self.missing_slots:
            return "hand-over" if self.interrupted_slots else "ready"
        if self.mode != Mode.AUTOMATIC:
            return "controller off"
        if self.is_waiting:
            return "waiting for Spot"
        booting = (i for i in self.instances if self.phase_of(i) == "booting" and i.deadline is None)
        coming = sum(i.slots for i in booting if self.now - i.launched_at <= MAX_BOOT_SECONDS)
        if coming < self.missing_slots:
            return "short"
        return "hand-over" if self.moves or self.serving_slots(self.now) else "starting"


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
        """Whether no alarm is active, and every group is ready, hands over or waits as planned."""
        return not self.alarms and all(group.condition in HEALTHY for group in self.groups)

    @property
    def cost(self) -> HourlyCost | None:
        """Cost of all groups per hour, None if the cost of a group is unknown."""
        costs = [group.cost for group in self.groups if group.cost is not None]
        if len(costs) < len(self.groups):
            return None
        return HourlyCost(sum(cost.paid for cost in costs), sum(cost.on_demand for cost in costs))
