"""Invariants of every accepted plan, checked by the plan and the list only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from userdata.agent.tenants.model import HostPlan, HostShape, Slice, Tenant


def oversold(host: HostShape, tenants: Sequence[Tenant], plan: HostPlan) -> list[str]:
    """Return the oversold resources, and the tenants that do not have what they requested."""
    found = []
    reserve = sum(len(core) for core in host.reserved_cores)
    if sum(one.memory_bytes for one in plan.slices.values()) > host.tenants_memory_gib * 2**30:
        found.append("memory")
    if sum(t.cpus for t in tenants if t.cpu_mode != "pinned") > len(plan.shared_cpus):
        found.append("shared CPUs")
    if sum(t.cpus for t in tenants) > host.cpus - reserve:
        found.append("CPUs")
    for t in tenants:
        got = plan.slices[t.name]
        if got.memory_bytes != t.memory_gib * 2**30:
            found.append(f"memory of {t.name}")
        if t.cpu_mode == "pinned" and len(got.cpus) != t.cpus:
            found.append(f"CPUs of {t.name}")
        if got.cpu_limit != (t.cpus if t.cpu_mode == "capped" else None):
            found.append(f"limit of {t.name}")
        if t.cpu_mode != "pinned" and got.cpus != plan.shared_cpus:
            found.append(f"shared CPUs of {t.name}")
        if len(got.gpus) != (t.gpus or len(t.gpu_ids)) or not {*t.gpu_ids} <= {*got.gpus}:
            found.append(f"GPUs of {t.name}")
        if (got.mig.profile if got.mig else None) != t.mig:
            found.append(f"part of {t.name}")
        if not {*got.gpus} <= {*host.gpus} or (got.mig and got.mig.gpu not in host.gpus):
            found.append(f"no such GPU for {t.name}")
    return found


def overlaps(host: HostShape, plan: HostPlan) -> list[str]:
    """Return the overlaps between tenants, and with the resources reserved for the system."""
    found = []
    threads = {cpu: core for node in host.nodes for core in node.cores for cpu in core}
    system = {cpu for core in host.reserved_cores for cpu in core}
    parts = {name: places(host, one) for name, one in plan.slices.items()}
    for name, one in plan.slices.items():
        if system & {*one.cpus}:
            found.append(f"{name} on the system's CPUs")
        if one.pinned and {c for cpu in one.cpus for c in threads[cpu]} != {*one.cpus}:
            found.append(f"{name} on half a core")
    for (a, one), (b, other) in combinations(plan.slices.items(), 2):
        if (one.pinned or other.pinned) and {*one.cpus} & {*other.cpus}:
            found.append(f"{a} and {b}: CPUs")
        if parts[a] & parts[b]:
            found.append(f"{a} and {b}: GPUs")
    return found


def places(host: HostShape, one: Slice) -> set[tuple[int, int]]:
    """Return the eighths of GPUs that a slice has."""
    found = {(gpu, eighth) for gpu in one.gpus for eighth in range(8)}
    if one.mig is not None:
        size = {profile.name: profile.size for profile in host.mig}[one.mig.profile]
        found |= {(one.mig.gpu, one.mig.start + n) for n in range(size)}
    return found


def moved(before: Mapping[str, Slice], after: Mapping[str, Slice], same: set[str]) -> list[str]:
    """Return the tenants of ``same`` (with unchanged requests) whose GPUs or pinned CPUs changed."""
    found = []
    for name in sorted(same & {*before} & {*after}):
        one, other = before[name], after[name]
        if one.gpus != other.gpus or one.mig != other.mig or (one.pinned and one.cpus != other.cpus):
            found.append(name)
    return found
