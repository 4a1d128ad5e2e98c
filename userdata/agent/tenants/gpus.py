"""Allocation of GPUs: whole GPUs by id or number, and MIG instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from userdata.agent.tenants.model import HostShape, MigInstance, MigProfile, Slice, Tenant


class InsufficientGpusError(Exception):
    """The host has not enough GPUs for the requests."""


@dataclass(frozen=True)
class GpuAllocation:
    """A tenant's ``whole`` GPUs, or its MIG instance ``part``."""

    whole: tuple[int, ...] = ()
    part: MigInstance | None = None

    @property
    def gpus(self) -> tuple[int, ...]:
        """The ids of its GPUs."""
        return self.whole if self.part is None else (self.part.gpu,)


@dataclass
class _Allocations:
    """The allocations so far."""

    host: HostShape
    whole: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parts: dict[str, MigInstance] = field(default_factory=dict)

    @property
    def allocated(self) -> set[int]:
        return {gpu for gpus in self.whole.values() for gpu in gpus}

    @property
    def partitioned(self) -> set[int]:
        return {part.gpu for part in self.parts.values()}

    @property
    def free(self) -> list[int]:
        return [gpu for gpu in self.host.gpus if gpu not in self.allocated | self.partitioned]

    def used_slices(self, gpu: int) -> set[int]:
        """Return the allocated memory slices of a GPU."""
        return {
            position
            for part in self.parts.values()
            if part.gpu == gpu
            for position in range(part.start, part.start + profile(self.host, part.profile).size)
        }


def profile(host: HostShape, name: str) -> MigProfile:
    """Return a MIG profile of the host's GPUs by name; raises ``KeyError``."""
    return {mig_profile.name: mig_profile for mig_profile in host.mig}[name]


def allocate(
    host: HostShape, tenants: Sequence[Tenant], running: Mapping[str, Slice]
) -> dict[str, GpuAllocation]:
    """Return each tenant's whole GPUs and MIG instance; independent of the order of ``tenants``.

    First requested ids, then running allocations that are still requested, then numbers, largest first and
    then by name, in one NUMA node if possible, then MIG instances, largest first, packed into few GPUs from
    the last GPU downwards.

    Raises:
        InsufficientGpusError: a requested GPU or profile does not exist or is already allocated.
    """
    table = _Allocations(host)
    for tenant in tenants:
        if {*tenant.gpu_ids} & table.allocated or not {*tenant.gpu_ids} <= {*host.gpus}:
            raise InsufficientGpusError
        table.whole[tenant.name] = tuple(sorted(tenant.gpu_ids))
    by_name = sorted(tenants, key=lambda tenant: tenant.name)
    for tenant in by_name:
        current = running[tenant.name].gpus if tenant.name in running and tenant.gpus else ()
        if retained := [gpu for gpu in sorted(current) if gpu in table.free][: tenant.gpus]:
            table.whole[tenant.name] = tuple(retained)
    profiles = {tenant.name: _profile(host, tenant.mig) for tenant in by_name if tenant.mig is not None}
    for name, mig_profile in profiles.items():
        _keep_part(table, name, mig_profile, running)
    for tenant in sorted(by_name, key=lambda tenant: -tenant.gpus):
        _allocate_whole(table, tenant)
    for name, mig_profile in sorted(profiles.items(), key=lambda item: (-item[1].size, len(item[1].starts))):
        if name not in table.parts:
            table.parts[name] = _allocate_mig(table, mig_profile)
    return {t.name: GpuAllocation(table.whole[t.name], table.parts.get(t.name)) for t in tenants}


def _profile(host: HostShape, name: str) -> MigProfile:
    try:
        return profile(host, name)
    except KeyError:
        raise InsufficientGpusError from None


def _keep_part(table: _Allocations, name: str, requested: MigProfile, running: Mapping[str, Slice]) -> None:
    part = running[name].mig if name in running else None
    if part is None or part.profile != requested.name or part.start not in requested.starts:
        return
    if part.gpu in {*table.free, *table.partitioned} and table.used_slices(part.gpu).isdisjoint(
        range(part.start, part.start + requested.size)
    ):
        table.parts[name] = part


def _allocate_mig(table: _Allocations, requested: MigProfile) -> MigInstance:
    # GPUs with MIG instances, the fullest first; then unused GPUs, the last first.
    cut = sorted(table.partitioned, key=lambda gpu: (-len(table.used_slices(gpu)), gpu))
    for gpu in (*cut, *reversed(table.free)):
        used = table.used_slices(gpu)
        for start in sorted(requested.starts, reverse=True):
            if used.isdisjoint(range(start, start + requested.size)):
                return MigInstance(gpu, requested.name, start)
    raise InsufficientGpusError


def _allocate_whole(table: _Allocations, tenant: Tenant) -> None:
    have = table.whole[tenant.name]
    missing = tenant.gpus - len(have)
    if missing <= 0:
        return
    free = table.free
    if missing > len(free):
        raise InsufficientGpusError
    near = [[gpu for gpu in node.gpus if gpu in free] for node in table.host.nodes]
    in_current_node = [sum(gpu in have for gpu in node.gpus) for node in table.host.nodes]
    # The tenant's current node, then the node with the least sufficient room, then the one with the most
    # room.
    order = sorted(
        range(len(near)),
        key=lambda n: (
            -in_current_node[n],
            *((0, len(near[n])) if len(near[n]) >= missing else (1, -len(near[n]))),
        ),
    )
    ranked = [gpu for n in order for gpu in near[n]]
    ranked += [gpu for gpu in free if gpu not in ranked]
    table.whole[tenant.name] = tuple(sorted((*have, *ranked[:missing])))
