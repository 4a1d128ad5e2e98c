"""What is to be done so that the containers follow the plan: a pure function of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from userdata.agent.tenants.model import Slice, Tenant


@dataclass(frozen=True)
class WantedTenant:
    """A tenant with what it gets, and the ``spec`` and ``shares`` that this makes of its container."""

    tenant: Tenant
    part: Slice
    spec: str
    shares: int


@dataclass(frozen=True)
class Found:
    """A tenant's container as Docker shows it; ``pid`` and ``started`` are 0 and empty before its start."""

    id: str
    tenant: str
    spec: str
    part: Slice | None
    """What it was started with, but its CPUs as they are now; None where its label cannot be read."""
    is_running: bool
    shares: int
    cpuset: str
    pid: int
    started: str
    pieces: frozenset[str]
    """What nobody else can have while it is there."""


@dataclass(frozen=True)
class TenantStep:
    """``update`` the CPUs of one that runs, ``start`` one (in the place of an old one), or ``end`` one."""

    kind: Literal["update", "end", "start"]
    tenant: str


def pieces(part: Slice | None, user: int | str, port: int | str | None) -> frozenset[str]:
    """Return what a tenant has to itself: GPUs, its user and so its bridge, its port on the host."""
    found = {f"user {user}"}
    if port:
        found.add(f"port {port}")
    if part is not None:
        found |= {f"GPU {gpu}" for gpu in part.gpus}
        if part.mig is not None:
            found.add(f"MIG {part.mig.gpu}:{part.mig.start}")
    return frozenset(found)


def steps(
    wanted: Mapping[str, WantedTenant],
    found: Mapping[str, Found],
    known: Collection[str],
    resting: Collection[str],
) -> tuple[TenantStep, ...]:
    """Return what can be done now, in order; who is ``resting`` is left alone, and nobody else waits for it.

    ``known`` are those of whom something may be here without a container, such as a volume.
    CPUs first, so that pinned ones are free before their tenant starts. Who needs a GPU or a port that
    another container still has waits for the next look.
    """
    updates, ends, starts = [], [], []
    for name in sorted({*found, *known} - {*wanted, *resting}):
        ends.append(TenantStep("end", name))
    for name, one in sorted(wanted.items()):
        here = found.get(name)
        if here is not None and here.is_running and here.spec == one.spec:
            if (here.cpuset, here.shares) != (one.part.cpuset, one.shares):
                updates.append(TenantStep("update", name))
        elif name not in resting and not _is_taken(one, found):
            starts.append(TenantStep("start", name))
    return (*updates, *ends, *starts)


def _is_taken(one: WantedTenant, found: Mapping[str, Found]) -> bool:
    tenant = one.tenant
    needs = pieces(one.part, tenant.uid, tenant.host_port)
    return any(needs & other.pieces for name, other in found.items() if name != tenant.name)
