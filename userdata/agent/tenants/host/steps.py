"""The steps that reconcile containers with the plan: a pure function of both.

Any list is reached in a bounded number of steps. A tenant waits only for a container that uses a resource of
its plan, and that container goes: its tenant is not in the list, or is replaced, or, where tenants wait for
each other or the replacement fails, is stopped first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from userdata.agent.tenants.model import MEMORY_SLICES, HostShape, MigProfile, Slice, Tenant
from userdata.agent.tenants.throughput import TenantBounds

StepKind: TypeAlias = Literal["update", "end", "clear", "start"]
_UNKNOWN_GPUS: Final = "GPU unknown"


@dataclass(frozen=True)
class DesiredTenant:
    """A tenant with its slice, and the ``spec`` hash, ``shares``, ``quota`` and GPUs of its container.

    Changed ``bounds`` of its throughput apply from the container's next start.
    """

    tenant: Tenant
    part: Slice
    spec: str
    shares: int
    quota: int
    gpus: tuple[str, ...]
    """Names that do not change: see `parts.GpuParts.names`."""
    bounds: TenantBounds


@dataclass(frozen=True)
class TenantContainer:
    """A tenant's container from Docker; ``pid`` is 0 and ``started`` empty before its start."""

    id: str
    tenant: str
    spec: str
    part: Slice | None
    """The slice of its label with its current CPUs; None if the label is invalid."""
    is_running: bool
    shares: int
    cpuset: str
    quota: int
    """CPU quota in microseconds of each period; -1: none."""
    pid: int
    started: str
    uid: str
    port: str | None


@dataclass(frozen=True)
class TenantStep:
    """A step for one tenant.

    ``update`` its CPUs; ``end`` one that is not in the list; ``clear``: remove its container, which blocks
    another tenant, but keep its volume; ``start`` it, replacing its container.
    """

    kind: StepKind
    tenant: str


@dataclass(frozen=True)
class TenantWork:
    """Work on tenants: names with work ``in_progress``, ``paused`` after a failure, ``failing`` repeatedly.

    ``starting`` are the plans of containers that are being started now, by tenant.
    """

    in_progress: Collection[str] = ()
    paused: Collection[str] = ()
    failing: Collection[str] = ()
    starting: Mapping[str, DesiredTenant] = field(default_factory=dict)


@dataclass(frozen=True)
class Reconciliation:
    """The steps that are possible now, in order, and for each waiting tenant what it waits for."""

    steps: tuple[TenantStep, ...]
    waits: Mapping[str, str]


def exclusive_resources(
    part: Slice | None, uid: int | str, port: int | str | None, profiles: Sequence[MigProfile] = ()
) -> frozenset[str]:
    """Return what no other container can use: GPUs by memory slice, user id (and so its bridge), host port.

    A MIG instance of a profile that this host does not have counts as its whole GPU; without a slice the GPUs
    are unknown.
    """
    resources = {f"uid {uid}"}
    if port:
        resources.add(f"port {port}")
    if part is None:
        return frozenset(resources | {_UNKNOWN_GPUS})
    for gpu in part.gpus:
        resources |= {f"GPU {gpu} slice {number}" for number in range(MEMORY_SLICES)}
    if part.mig is not None:
        sizes = {profile.name: profile.size for profile in profiles}
        size = sizes.get(part.mig.profile)
        numbers = range(part.mig.start, part.mig.start + size) if size else range(MEMORY_SLICES)
        resources |= {f"GPU {part.mig.gpu} slice {number}" for number in numbers}
    return frozenset(resources)


def resources_of(desired: DesiredTenant, profiles: Sequence[MigProfile] = ()) -> frozenset[str]:
    """Return the exclusive resources of a tenant's plan."""
    return exclusive_resources(desired.part, desired.tenant.uid, desired.tenant.host_port, profiles)


def reconcile(
    desired: Mapping[str, DesiredTenant],
    containers: Mapping[str, TenantContainer],
    present: Collection[str],
    work: TenantWork,
    shape: HostShape,
) -> Reconciliation:
    """Return the steps that are possible now and the waits.

    CPU updates come first, so that pinned CPUs are free before their tenant starts. A container that blocks
    another tenant is cleared if it has ended, if its own replacement fails, or if it is the first by name of
    tenants that wait for each other; else it is replaced in time.

    Args:
        desired: the plan, whose tenants share no resource and fit into the host's memory.
        containers: the containers by tenant.
        present: tenants that may have resources here without a container, such as a volume.
        work: the work on tenants; each has one at a time.
        shape: the host's.
    """
    idle = {*containers, *present, *desired} - {*work.in_progress}
    ends = sorted({*containers, *present} - {*desired, *work.paused} & idle)
    updates, starts = [], []
    blockers: dict[str, dict[str, str]] = {}
    uses = {name: _uses(container, shape.mig) for name, container in containers.items()}
    memory = {name: c.part.memory_bytes for name, c in containers.items() if c.is_running and c.part}
    for name, tenant in work.starting.items():
        uses[name] = uses.get(name, frozenset()) | resources_of(tenant, shape.mig)
        memory[name] = max(memory.get(name, 0), tenant.part.memory_bytes)
    excess = {n for n, used in memory.items() if n not in desired or used > desired[n].part.memory_bytes}
    for name, tenant in sorted(desired.items()):
        container = containers.get(name)
        if container is not None and container.is_running:
            if (container.cpuset, container.shares, container.quota) != _cpus(tenant):
                updates.append(name)
            if is_current(container, tenant):
                continue
        needs = resources_of(tenant, shape.mig)
        blocking = {peer: _shared(needs, used) for peer, used in uses.items() if peer != name}
        blockers[name] = {peer: shared for peer, shared in blocking.items() if shared}
        before, size = memory.get(name, 0), tenant.part.memory_bytes
        if sum(memory.values()) - before + size > shape.tenants_memory_gib * 2**30:
            blockers[name] |= dict.fromkeys(excess - {name, *blockers[name]}, "memory")
        if not blockers[name] and name in idle and name not in work.paused:
            starts.append(name)
            memory[name] = max(before, size)
    waiting = {name: blocking for name, blocking in blockers.items() if blocking}
    clears = [
        name
        for name in sorted({peer for blocking in waiting.values() for peer in blocking} & idle)
        if name in blockers and name not in starts and name in containers
        if not containers[name].is_running
        or name in work.failing
        or name == min(_cycle(name, waiting) & idle & containers.keys(), default=None)
    ]
    by_kind: dict[StepKind, list[str]] = {"update": updates, "end": ends, "clear": clears, "start": starts}
    steps = [TenantStep(kind, name) for kind, names in by_kind.items() for name in names]
    return Reconciliation(tuple(steps), {name: _reason(blocking) for name, blocking in waiting.items()})


def is_current(container: TenantContainer, desired: DesiredTenant) -> bool:
    """Return whether a container runs as its tenant's plan says, but for its CPUs."""
    return container.is_running and container.spec == desired.spec and container.part is not None


def _cpus(desired: DesiredTenant) -> tuple[str, int, int]:
    return desired.part.cpuset, desired.shares, desired.quota


def _uses(container: TenantContainer, profiles: Sequence[MigProfile]) -> frozenset[str]:
    return exclusive_resources(container.part, container.uid, container.port, profiles)


def _shared(needs: frozenset[str], used: frozenset[str]) -> str:
    """Return a resource that both have, empty if there is none."""
    shared = needs & used
    if not shared and _UNKNOWN_GPUS in used:
        shared = frozenset(resource for resource in needs if resource.startswith("GPU "))
    return min(shared, default="").partition(" slice")[0]


def _cycle(name: str, waiting: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the tenants that wait for ``name`` and that it waits for, itself included; empty if none."""
    return {peer for peer in _reached(name, waiting) if name in _reached(peer, waiting)}


def _reached(name: str, waiting: Mapping[str, Mapping[str, str]]) -> set[str]:
    reached: set[str] = set()
    following = [*waiting.get(name, ())]
    while following:
        peer = following.pop()
        if peer not in reached:
            reached.add(peer)
            following += waiting.get(peer, ())
    return reached


def _reason(blocking: Mapping[str, str]) -> str:
    return "waits for " + ", ".join(f"{resource} of {peer!r}" for peer, resource in sorted(blocking.items()))
