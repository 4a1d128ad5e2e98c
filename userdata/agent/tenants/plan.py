"""The planner: divides a host between its tenants; a pure function of the list, host and running slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from userdata.agent.tenants import gpus, weights
from userdata.agent.tenants.model import (
    MAX_TENANTS,
    UIDS_APART,
    HostPlan,
    HostShape,
    PlanRefusedError,
    Slice,
    Tenant,
)


def plan(host: HostShape, tenants: Sequence[Tenant], running: Mapping[str, Slice] | None = None) -> HostPlan:
    """Return each tenant's slice.

    ``running`` are the running slices by name. A tenant keeps its GPUs and pinned CPUs if it still requests
    them, unless another tenant requests that GPU by id or the MIG instances only fit in another order. The
    rest is allocated in a stable order: see ``gpus.allocate`` for GPUs; pinned CPUs core by core, largest
    first and then by name, in one NUMA node if possible, preferably that of the tenant's GPUs. Invariant:
    whether a list is accepted depends on the host and the list only, not on ``running``.

    Raises:
        PlanRefusedError: the list does not fit; names the first tenant that does not.
    """
    _check(host, tenants)
    dealt = _try_allocate(host, tenants, running or {}) or gpus.allocate(host, tenants, {})
    pinned = _pinned(host, tenants, dealt, running or {})
    unavailable = {cpu for core in host.reserved_cores for cpu in core}.union(*pinned.values())
    shared = tuple(
        sorted(cpu for node in host.nodes for core in node.cores for cpu in core if cpu not in unavailable)
    )
    slices = {
        tenant.name: Slice(
            cpus=pinned.get(tenant.name, shared),
            weight=weights.PER_CPU * tenant.cpus,
            memory_bytes=tenant.memory_gib * 2**30,
            pinned=tenant.cpu_mode == "pinned",
            gpus=dealt[tenant.name].whole,
            mig=dealt[tenant.name].part,
            cpu_limit=tenant.cpus if tenant.cpu_mode == "capped" else None,
        )
        for tenant in tenants
    }
    return HostPlan(slices, shared)


def _check(host: HostShape, tenants: Sequence[Tenant]) -> None:
    """Raise ``PlanRefusedError`` for the first tenant that does not fit with those before it."""
    cpus = host.cpus - sum(len(core) for core in host.reserved_cores)
    memory = host.tenants_memory_gib
    if len(tenants) > MAX_TENANTS:
        raise PlanRefusedError(f"a host can have at most {MAX_TENANTS} tenants, not {len(tenants)}")
    for number, tenant in enumerate(tenants):
        before = tenants[:number]
        for earlier in before:
            _check_pair(tenant, earlier)
        if tenant.cpu_mode == "pinned" and tenant.cpus % host.threads:
            raise _rejection(
                tenant, f"{tenant.cpus} pinned CPUs are not whole cores", f"use a multiple of {host.threads}"
            )
        if tenant.cpus > cpus:
            raise _rejection(
                tenant,
                f"{tenant.cpus} CPUs are too many",
                f"use at most {max(cpus, 0)}, {_remaining_after(before)}",
            )
        if tenant.memory_gib > memory:
            raise _rejection(
                tenant,
                f"memoryGiB {tenant.memory_gib} is too much",
                f"use at most {max(memory, 0)}, {_remaining_after(before)}",
            )
        cpus -= tenant.cpus
        memory -= tenant.memory_gib
        if _requests_gpus(tenant) and _try_allocate(host, tenants[: number + 1], {}) is None:
            raise _gpu_rejection(host, tenant, before)


def _check_pair(tenant: Tenant, earlier: Tenant) -> None:
    """Raise ``PlanRefusedError`` if two tenants request the same name, user, addresses or port."""
    if tenant.name == earlier.name:
        raise _rejection(tenant, f"an earlier tenant has the name {tenant.name}", "use each name once")
    if tenant.uid == earlier.uid:
        raise _rejection(tenant, f"uid {tenant.uid} is {earlier.name!r}'s", "use each uid once")
    if (tenant.uid - earlier.uid) % UIDS_APART == 0:
        addresses = f"uid {tenant.uid} has the addresses of {earlier.name!r} with uid {earlier.uid}"
        raise _rejection(tenant, addresses, f"use uids that do not differ by {UIDS_APART}")
    if tenant.host_port is not None and tenant.host_port == earlier.host_port:
        port = f"hostPort {tenant.host_port} is {earlier.name!r}'s"
        raise _rejection(tenant, port, "use each hostPort once")


def _requests_gpus(tenant: Tenant) -> bool:
    return bool(tenant.gpus or tenant.gpu_ids or tenant.mig)


def _remaining_after(before: Sequence[Tenant]) -> str:
    return f"which the system{' and the tenants before it leave' if before else ' leaves'}"


def _gpu_rejection(host: HostShape, tenant: Tenant, before: Sequence[Tenant]) -> PlanRefusedError:
    used = {gpu for share in gpus.allocate(host, before, {}).values() for gpu in share.gpus}
    remaining = f"{len(host.gpus) - len(used)} of {len(host.gpus)} GPUs, which the tenants before it leave"
    if tenant.mig is not None:
        if tenant.mig in {mig_profile.name for mig_profile in host.mig}:
            return _rejection(
                tenant, f"MIG profile {tenant.mig} does not fit", f"use what fits into {remaining}"
            )
        profiles = ", ".join(mig_profile.name for mig_profile in host.mig)
        return _rejection(
            tenant,
            f"MIG profile {tenant.mig} does not exist on this host",
            f"use one of {profiles}" if profiles else "these GPUs do not support MIG",
        )
    if not tenant.gpu_ids:
        return _rejection(tenant, f"{tenant.gpus} GPUs are too many", f"there are {remaining}")
    owners = {gpu: earlier.name for earlier in before for gpu in earlier.gpu_ids}
    for gpu in tenant.gpu_ids:
        if gpu in owners:
            return _rejection(tenant, f"GPU {gpu} is {owners[gpu]!r}'s", "use each GPU once")
        if gpu not in host.gpus:
            return _rejection(
                tenant,
                f"GPU {gpu} does not exist on this host",
                f"its GPUs are {', '.join(map(str, host.gpus)) or 'none'}",
            )
    return _rejection(tenant, f"GPUs {list(tenant.gpu_ids)} cannot be given", f"there are {remaining}")


def _rejection(tenant: Tenant, value: str, remedy: str) -> PlanRefusedError:
    return PlanRefusedError(f"tenant {tenant.name!r}: {value}; {remedy}")


def _try_allocate(
    host: HostShape, tenants: Sequence[Tenant], running: Mapping[str, Slice]
) -> dict[str, gpus.GpuAllocation] | None:
    try:
        return gpus.allocate(host, tenants, running)
    except gpus.InsufficientGpusError:
        return None


def _pinned(
    host: HostShape,
    tenants: Sequence[Tenant],
    dealt: Mapping[str, gpus.GpuAllocation],
    running: Mapping[str, Slice],
) -> dict[str, tuple[int, ...]]:
    """Return the exclusive CPUs of the pinned tenants, by name."""
    reserved = host.reserved_cores
    free = [[core for core in node.cores if core not in reserved] for node in host.nodes]
    pinned = sorted((t for t in tenants if t.cpu_mode == "pinned"), key=lambda t: (-t.cpus, t.name))
    cores: dict[str, list[tuple[int, ...]]] = {tenant.name: [] for tenant in pinned}
    for tenant in pinned:
        current = running.get(tenant.name)
        if current is None or not current.pinned:
            continue
        cores_needed = tenant.cpus // host.threads
        for node in free:
            current_cores = [core for core in node if {*core} <= {*current.cpus}]
            retained = current_cores[: cores_needed - len(cores[tenant.name])]
            cores[tenant.name] += retained
            node[:] = [core for core in node if core not in retained]
    for tenant in pinned:
        missing = tenant.cpus // host.threads - len(cores[tenant.name])
        for number in _nodes(host, free, missing, {*dealt[tenant.name].gpus}, cores[tenant.name]):
            allocated = free[number][: max(missing, 0)]
            cores[tenant.name] += allocated
            free[number] = free[number][len(allocated) :]
            missing -= len(allocated)
    return {name: tuple(sorted(cpu for core in mine for cpu in core)) for name, mine in cores.items()}


def _nodes(
    host: HostShape,
    free: Sequence[Sequence[tuple[int, ...]]],
    missing: int,
    near: set[int],
    have: Sequence[tuple[int, ...]],
) -> list[int]:
    """Return the nodes in the order in which a tenant's cores are allocated."""

    def rank(number: int) -> tuple[int, int, int, int]:
        node, room = host.nodes[number], len(free[number])
        fits = room >= missing
        in_node = sum(core in node.cores for core in have)
        # The current node, then near its GPUs, then the least sufficient room, then the most room.
        return (-in_node, -len(near.intersection(node.gpus)), 0 if fits else 1, room if fits else -room)

    return sorted(range(len(host.nodes)), key=rank)
