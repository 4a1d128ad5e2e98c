"""One cause behind many hosts: what is wrong is then not with them, and replacing them only burns money.

A bad image, a registry that cannot be written, a broker that lost its connections, a site without network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from contracts import names
from lambdas.core.health.model import FAMILY, ORIGINS, HealthVerdict, Sight, WorkerHost
from lambdas.core.health.symptoms import HealthSigns
from lambdas.core.model import is_one_cause

REGISTRY: Final = "registry"
COMMON: Final = "common"


@dataclass(frozen=True, slots=True)
class CommonCause:
    """A family of findings on ``hosts`` of ``population`` hosts: of an origin, or with a version."""

    family: str
    where: str
    hosts: int
    population: int

    @property
    def key(self) -> str:
        """What tells it from other incidents."""
        return f"{COMMON}/{self.family}/{self.where}"


def causes(sight: Sight, signs: HealthSigns) -> tuple[CommonCause, ...]:
    """Return what more than half of an origin's hosts show, or of those that run a version, at once.

    A suspicion counts like a finding once there is one: who breaks together does not break in one second.
    """
    if sight.registry_silent:
        return (CommonCause(FAMILY[HealthVerdict.SILENT], REGISTRY, len(sight.hosts), len(sight.hosts)),)
    found = {FAMILY[f.kind] for f in signs.findings if f.kind in FAMILY}
    populations = _populations([host for host in sight.hosts if not host.spared])
    return tuple(_causes(found, populations, signs.suspects))


def held_at(keys: Iterable[str]) -> frozenset[str]:
    """Return the origins where nothing is begun while causes with these keys stand."""
    found: set[str] = set()
    for key in keys:
        if key.startswith(f"{COMMON}/"):
            site = names.ORIGIN_ON_PREMISES
            found.update((site,) if key.endswith(f"/{site}") else ORIGINS)
    return frozenset(found)


def _causes(
    families: set[str], populations: Mapping[str, frozenset[str]], suspects: Mapping[str, frozenset[str]]
) -> Iterator[CommonCause]:
    for family in sorted(families):
        ill = suspects.get(family, frozenset())
        named: set[str] = set()
        # Versions first: where one explains all, the origin is not named, too.
        for where, hosts in sorted(populations.items(), key=lambda item: (item[0] in ORIGINS, item[0])):
            affected = ill & hosts
            if not is_one_cause(len(affected), len(hosts)) or affected <= named:
                continue
            named |= affected
            yield CommonCause(family, where, len(affected), len(hosts))


def _populations(hosts: list[WorkerHost]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for host in hosts:
        found.setdefault(host.origin, set()).add(host.id)
        for version in host.versions:
            found.setdefault(f"version {version}", set()).add(host.id)
    return {where: frozenset(ids) for where, ids in found.items()}
