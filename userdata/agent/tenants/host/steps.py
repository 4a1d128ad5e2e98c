"""The steps that reconcile containers with the plan: a pure function of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from userdata.agent.tenants.model import Slice, Tenant


@dataclass(frozen=True)
class DesiredTenant:
    """A tenant with its slice, and the ``spec`` hash, ``shares``, ``quota`` and GPUs of its container."""

    tenant: Tenant
    part: Slice
    spec: str
    shares: int
    quota: int
    gpus: tuple[str, ...]
    """UUIDs."""


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
    resources: frozenset[str]
    """Resources that no other container can use while it exists."""


@dataclass(frozen=True)
class TenantStep:
    """``update`` the CPUs of a running tenant, ``start`` it (replacing its container), or ``end`` it."""

    kind: Literal["update", "end", "start"]
    tenant: str


def exclusive_resources(part: Slice | None, user: int | str, port: int | str | None) -> frozenset[str]:
    """Return a tenant's exclusive resources: GPUs, user id (and so its bridge), host port."""
    resources = {f"user {user}"}
    if port:
        resources.add(f"port {port}")
    if part is not None:
        resources |= {f"GPU {gpu}" for gpu in part.gpus}
        if part.mig is not None:
            resources.add(f"MIG {part.mig.gpu}:{part.mig.start}")
    return frozenset(resources)


def steps(
    desired: Mapping[str, DesiredTenant],
    containers: Mapping[str, TenantContainer],
    present: Collection[str],
    paused: Collection[str],
) -> tuple[TenantStep, ...]:
    """Return the steps that are possible now, in order; ``paused`` tenants are skipped.

    ``present`` are tenants that may have resources here without a container, such as a volume. CPU updates
    come first, so that pinned CPUs are free before their tenant starts. A tenant that needs a GPU or a port
    of another container waits.
    """
    updates, ends, starts = [], [], []
    for name in sorted({*containers, *present} - {*desired, *paused}):
        ends.append(TenantStep("end", name))
    for name, tenant in sorted(desired.items()):
        container = containers.get(name)
        if container is not None and container.is_running and container.spec == tenant.spec:
            current = container.cpuset, container.shares, container.quota
            if current != (tenant.part.cpuset, tenant.shares, tenant.quota):
                updates.append(TenantStep("update", name))
        elif name not in paused and not _is_blocked(tenant, containers):
            starts.append(TenantStep("start", name))
    return (*updates, *ends, *starts)


def _is_blocked(desired: DesiredTenant, containers: Mapping[str, TenantContainer]) -> bool:
    tenant = desired.tenant
    needs = exclusive_resources(desired.part, tenant.uid, tenant.host_port)
    return any(needs & container.resources for name, container in containers.items() if name != tenant.name)
