"""Deal out GPUs: whole ones by id or by number, and parts of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from userdata.agent.tenants.model import HostShape, MigInstance, MigProfile, Slice, Tenant


class NoRoomError(Exception):
    """Not all can have what they ask for."""


@dataclass(frozen=True)
class Share:
    """A tenant's ``whole`` GPUs, or its ``part`` of one."""

    whole: tuple[int, ...] = ()
    part: MigInstance | None = None

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that it works on."""
        return self.whole if self.part is None else (self.part.gpu,)


@dataclass
class _Table:
    """What is dealt so far."""

    host: HostShape
    whole: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parts: dict[str, MigInstance] = field(default_factory=dict)

    @property
    def taken(self) -> set[int]:
        return {gpu for gpus in self.whole.values() for gpu in gpus}

    @property
    def cut(self) -> set[int]:
        return {part.gpu for part in self.parts.values()}

    @property
    def free(self) -> list[int]:
        return [gpu for gpu in self.host.gpus if gpu not in self.taken | self.cut]

    def used(self, gpu: int) -> set[int]:
        """Return the memory slices of a GPU that are dealt."""
        return {
            place
            for part in self.parts.values()
            if part.gpu == gpu
            for place in range(part.start, part.start + profile(self.host, part.profile).size)
        }


def profile(host: HostShape, name: str) -> MigProfile:
    """Return a profile of the host's GPUs by its name; raise ``KeyError``."""
    return {one.name: one for one in host.mig}[name]


def deal(host: HostShape, tenants: Sequence[Tenant], held: Mapping[str, Slice]) -> dict[str, Share]:
    """Return each tenant's whole GPUs and its part of one.

    Ids that are asked for come first, then what is held and still asked for, then numbers, the biggest first
    and else by name, in one NUMA node where one has room, then parts, the biggest first, packed into few GPUs
    from the last one on. The order of ``tenants`` says nothing.

    Raises:
        NoRoomError: something is asked for that is not there, or not any more.
    """
    table = _Table(host)
    for tenant in tenants:
        if {*tenant.gpu_ids} & table.taken or not {*tenant.gpu_ids} <= {*host.gpus}:
            raise NoRoomError
        table.whole[tenant.name] = tuple(sorted(tenant.gpu_ids))
    by_name = sorted(tenants, key=lambda tenant: tenant.name)
    for tenant in by_name:
        mine = held[tenant.name].gpus if tenant.name in held and tenant.gpus else ()
        if kept := [gpu for gpu in sorted(mine) if gpu in table.free][: tenant.gpus]:
            table.whole[tenant.name] = tuple(kept)
    wanted = {tenant.name: _profile(host, tenant.mig) for tenant in by_name if tenant.mig is not None}
    for name, one in wanted.items():
        _keep_part(table, name, one, held)
    for tenant in sorted(by_name, key=lambda tenant: -tenant.gpus):
        _fill(table, tenant)
    for name, one in sorted(wanted.items(), key=lambda item: (-item[1].size, len(item[1].starts))):
        if name not in table.parts:
            table.parts[name] = _part(table, one)
    return {t.name: Share(table.whole[t.name], table.parts.get(t.name)) for t in tenants}


def _profile(host: HostShape, name: str) -> MigProfile:
    try:
        return profile(host, name)
    except KeyError:
        raise NoRoomError from None


def _keep_part(table: _Table, name: str, wanted: MigProfile, held: Mapping[str, Slice]) -> None:
    part = held[name].mig if name in held else None
    if part is None or part.profile != wanted.name or part.start not in wanted.starts:
        return
    if part.gpu in {*table.free, *table.cut} and table.used(part.gpu).isdisjoint(
        range(part.start, part.start + wanted.size)
    ):
        table.parts[name] = part


def _part(table: _Table, wanted: MigProfile) -> MigInstance:
    # GPUs that are cut already, the fullest first; then the last that nobody has.
    cut = sorted(table.cut, key=lambda gpu: (-len(table.used(gpu)), gpu))
    for gpu in (*cut, *reversed(table.free)):
        used = table.used(gpu)
        for start in sorted(wanted.starts, reverse=True):
            if used.isdisjoint(range(start, start + wanted.size)):
                return MigInstance(gpu, wanted.name, start)
    raise NoRoomError


def _fill(table: _Table, tenant: Tenant) -> None:
    have = table.whole[tenant.name]
    missing = tenant.gpus - len(have)
    if missing <= 0:
        return
    free = table.free
    if missing > len(free):
        raise NoRoomError
    near = [[gpu for gpu in node.gpus if gpu in free] for node in table.host.nodes]
    at_home = [sum(gpu in have for gpu in node.gpus) for node in table.host.nodes]
    # The node where the tenant already is, then the one with just enough room, then the roomiest.
    order = sorted(
        range(len(near)),
        key=lambda n: (-at_home[n], *((0, len(near[n])) if len(near[n]) >= missing else (1, -len(near[n])))),
    )
    ranked = [gpu for n in order for gpu in near[n]]
    ranked += [gpu for gpu in free if gpu not in ranked]
    table.whole[tenant.name] = tuple(sorted((*have, *ranked[:missing])))
