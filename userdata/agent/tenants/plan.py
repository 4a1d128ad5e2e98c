"""Divide a host between its tenants: a pure function of the list, the host, and what runs there now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from userdata.agent.tenants import gpus, weights
from userdata.agent.tenants.model import MOST_TENANTS, HostPlan, HostShape, PlanRefusedError, Slice, Tenant


def plan(host: HostShape, tenants: Sequence[Tenant], held: Mapping[str, Slice] | None = None) -> HostPlan:
    """Return what each tenant gets.

    ``held`` is what runs now, by name. What a tenant holds of GPUs and pinned CPUs and still asks for it
    keeps, but where another asks for that GPU by its id, or where parts of GPUs fit in another order only.
    The rest goes out in a stable order: ``gpus.deal`` says which for GPUs; pinned CPUs go core by core, to
    the biggest first and else by name, in one NUMA node where one has room, that of the tenant's GPUs first.
    Whether a list is accepted depends on the host and the list alone, never on ``held``.

    Raises:
        PlanRefusedError: the list does not fit. The line names the first tenant that does not.
    """
    _check(host, tenants)
    dealt = _deal(host, tenants, held or {}) or gpus.deal(host, tenants, {})
    own = _pinned(host, tenants, dealt, held or {})
    taken = {cpu for core in host.reserved_cores for cpu in core}.union(*own.values())
    shared = tuple(
        sorted(cpu for node in host.nodes for core in node.cores for cpu in core if cpu not in taken)
    )
    slices = {
        tenant.name: Slice(
            cpus=own.get(tenant.name, shared),
            weight=weights.PER_CPU * tenant.cpus,
            memory_bytes=tenant.memory_gib * 2**30,
            pinned=tenant.cpu_mode == "pinned",
            gpus=dealt[tenant.name].whole,
            mig=dealt[tenant.name].part,
        )
        for tenant in tenants
    }
    return HostPlan(slices, shared)


def _check(host: HostShape, tenants: Sequence[Tenant]) -> None:
    """Raise ``PlanRefusedError`` for the first tenant that does not fit beside those before it."""
    cpus = host.cpus - sum(len(core) for core in host.reserved_cores)
    memory = host.memory_gib - host.reserved_memory_gib
    if len(tenants) > MOST_TENANTS:
        raise PlanRefusedError(f"{len(tenants)} tenants, allowed: at most {MOST_TENANTS} on a host")
    for number, tenant in enumerate(tenants):
        before = tenants[:number]
        for what, value, others in (
            ("name", tenant.name, [other.name for other in before]),
            ("uid", tenant.uid, [other.uid for other in before]),
            ("hostPort", tenant.host_port, [other.host_port for other in before]),
        ):
            if value is not None and value in others:
                raise _refused(tenant, f"{what} {value}", f"each {what} once")
        if tenant.cpu_mode == "pinned" and tenant.cpus % host.threads:
            raise _refused(
                tenant, f"{tenant.cpus} pinned CPUs", f"whole cores, of {host.threads} CPUs each on this host"
            )
        if tenant.cpus > cpus:
            raise _refused(tenant, f"{tenant.cpus} CPUs", f"at most {max(cpus, 0)}, {_left(before)}")
        if tenant.memory_gib > memory:
            raise _refused(
                tenant, f"memoryGiB {tenant.memory_gib}", f"at most {max(memory, 0)}, {_left(before)}"
            )
        cpus -= tenant.cpus
        memory -= tenant.memory_gib
        if _asks_for_gpus(tenant) and _deal(host, tenants[: number + 1], {}) is None:
            raise _no_gpu(host, tenant, before)


def _asks_for_gpus(tenant: Tenant) -> bool:
    return bool(tenant.gpus or tenant.gpu_ids or tenant.mig)


def _left(before: Sequence[Tenant]) -> str:
    return f"which the system{' and the tenants before it leave' if before else ' leaves'}"


def _no_gpu(host: HostShape, tenant: Tenant, before: Sequence[Tenant]) -> PlanRefusedError:
    used = {gpu for share in gpus.deal(host, before, {}).values() for gpu in share.gpus}
    left = f"{len(host.gpus) - len(used)} of {len(host.gpus)} GPUs, which the tenants before it leave"
    if tenant.mig is not None:
        if tenant.mig in {one.name for one in host.mig}:
            return _refused(tenant, f"MIG profile {tenant.mig}", f"what fits into {left}")
        profiles = ", ".join(one.name for one in host.mig)
        return _refused(tenant, f"MIG profile {tenant.mig}", profiles or "none, these GPUs cannot be cut")
    if not tenant.gpu_ids:
        return _refused(tenant, f"{tenant.gpus} GPUs", left)
    owners = {gpu: other.name for other in before for gpu in other.gpu_ids}
    for gpu in tenant.gpu_ids:
        if gpu in owners:
            return _refused(tenant, f"GPU {gpu}, which is {owners[gpu]!r}'s", "each GPU once")
        if gpu not in host.gpus:
            return _refused(tenant, f"GPU {gpu}", ", ".join(map(str, host.gpus)) or "none on this host")
    return _refused(tenant, f"GPUs {list(tenant.gpu_ids)}", left)


def _refused(tenant: Tenant, what: str, allowed: str) -> PlanRefusedError:
    return PlanRefusedError(f"tenant {tenant.name!r}: {what}, allowed: {allowed}")


def _deal(
    host: HostShape, tenants: Sequence[Tenant], held: Mapping[str, Slice]
) -> dict[str, gpus.Share] | None:
    try:
        return gpus.deal(host, tenants, held)
    except gpus.NoRoomError:
        return None


def _pinned(
    host: HostShape,
    tenants: Sequence[Tenant],
    dealt: Mapping[str, gpus.Share],
    held: Mapping[str, Slice],
) -> dict[str, tuple[int, ...]]:
    """Return the CPUs of those who have some to themselves."""
    reserved = host.reserved_cores
    free = [[core for core in node.cores if core not in reserved] for node in host.nodes]
    asking = sorted((t for t in tenants if t.cpu_mode == "pinned"), key=lambda t: (-t.cpus, t.name))
    cores: dict[str, list[tuple[int, ...]]] = {tenant.name: [] for tenant in asking}
    for tenant in asking:
        had = held.get(tenant.name)
        if had is None or not had.pinned:
            continue
        wanted = tenant.cpus // host.threads
        for node in free:
            kept = [core for core in node if {*core} <= {*had.cpus}][: wanted - len(cores[tenant.name])]
            cores[tenant.name] += kept
            node[:] = [core for core in node if core not in kept]
    for tenant in asking:
        missing = tenant.cpus // host.threads - len(cores[tenant.name])
        for number in _nodes(host, free, missing, {*dealt[tenant.name].gpus}, cores[tenant.name]):
            taken = free[number][: max(missing, 0)]
            cores[tenant.name] += taken
            free[number] = free[number][len(taken) :]
            missing -= len(taken)
    return {name: tuple(sorted(cpu for core in mine for cpu in core)) for name, mine in cores.items()}


def _nodes(
    host: HostShape,
    free: Sequence[Sequence[tuple[int, ...]]],
    missing: int,
    near: set[int],
    have: Sequence[tuple[int, ...]],
) -> list[int]:
    """Return the nodes in the order in which a tenant takes cores of them."""

    def rank(number: int) -> tuple[int, int, int, int]:
        node, room = host.nodes[number], len(free[number])
        fits = room >= missing
        at_home = sum(core in node.cores for core in have)
        # Where it already is, then near its GPUs, then where just enough is free, then where most is.
        return (-at_home, -len(near.intersection(node.gpus)), 0 if fits else 1, room if fits else -room)

    return sorted(range(len(host.nodes)), key=rank)
