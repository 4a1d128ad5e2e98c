"""Deal the machine out between its tenants: a pure function of who is declared and who holds what."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from userdata.agent.errors import RefusedError
from userdata.agent.slices.model import DEALT_PORTS, Machine, Share, Slices

T = TypeVar("T", bound=Hashable)


def plan(slices: Slices, machine: Machine, held: Mapping[str, Share]) -> dict[str, Share]:
    """Return every declared tenant's share.

    What a tenant holds he keeps, whoever comes, goes, grows or shrinks; what he lacks comes from what is
    free, in the machine's order, to the tenants in the order of their names. So the same input gives the
    same shares.

    Raises:
        RefusedError: a tenant asks for more than is left. Nothing is dealt out then.
    """
    tenants = sorted(slices.tenants, key=lambda tenant: tenant.name)
    own = machine.cpus[slices.reserved_cpus :]
    gpus = _deal(
        "GPUs", {t.name: t.gpus for t in tenants}, machine.gpus, {n: s.gpus for n, s in held.items()}
    )
    cpus = _deal("CPUs", {t.name: t.cpus for t in tenants}, own, {n: s.cpus for n, s in held.items()})
    unnamed = {t.name: int(t.port > 0 and not t.host_port) for t in tenants}
    ports = _deal("ports", unnamed, DEALT_PORTS, {n: (s.port,) for n, s in held.items()})
    _check_memory(slices, machine, held)
    return {
        t.name: Share(gpus[t.name], cpus[t.name], t.memory_gib, t.host_port or next(iter(ports[t.name]), 0))
        for t in tenants
    }


def _deal(
    what: str, wanted: Mapping[str, int], pieces: Sequence[T], held: Mapping[str, Sequence[T]]
) -> dict[str, tuple[T, ...]]:
    taken: set[T] = set()
    kept: dict[str, list[T]] = {}
    for name, count in wanted.items():
        mine = held.get(name, ())
        kept[name] = [piece for piece in pieces if piece in mine and piece not in taken][:count]
        taken.update(kept[name])
    free = [piece for piece in pieces if piece not in taken]
    place = {piece: number for number, piece in enumerate(pieces)}
    dealt = {}
    for name, count in wanted.items():
        missing = count - len(kept[name])
        if missing > len(free):
            raise RefusedError(_too_much(name, what, count, len(kept[name]) + len(free)))
        dealt[name] = tuple(sorted([*kept[name], *free[:missing]], key=place.__getitem__))
        free = free[missing:]
    return dealt


def _check_memory(slices: Slices, machine: Machine, held: Mapping[str, Share]) -> None:
    kept = {t.name: min(t.memory_gib, held.get(t.name, Share()).memory_gib) for t in slices.tenants}
    free = machine.memory_gib - slices.reserved_memory_gib - sum(kept.values())
    for tenant in sorted(slices.tenants, key=lambda t: t.name):
        free -= tenant.memory_gib - kept[tenant.name]
        if free < 0:
            left = max(free + tenant.memory_gib, 0)
            raise RefusedError(_too_much(tenant.name, "GiB of memory", tenant.memory_gib, left))


def _too_much(tenant: str, what: str, asked: int, left: int) -> str:
    return f"slices: tenant {tenant} asks for {asked} {what}, {left} left; allowed: what the machine has"
