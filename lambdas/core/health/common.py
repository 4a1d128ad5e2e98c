"""Common causes: one fault that affects many hosts, where replacing them does not help and costs money.

Examples: a bad image, a registry that cannot be written, a broker that lost its connections, a site without
network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from contracts import names
from lambdas.core.health.model import FAMILY, ORIGINS, HealthVerdict, ServiceSnapshot, WorkerHost
from lambdas.core.health.symptoms import DetectedSymptoms
from lambdas.core.model import is_shared_cause

REGISTRY_SCOPE: Final = "registry"
COMMON_PREFIX: Final = "common"


@dataclass(frozen=True, slots=True)
class CommonCause:
    """One family of symptoms on ``hosts`` of ``population`` hosts.

    ``scope`` is an origin (`ORIGINS`), ``version <version>``, or `REGISTRY_SCOPE` for the whole stack.
    """

    family: str
    scope: str
    hosts: int
    population: int

    @property
    def key(self) -> str:
        """The key of its incident."""
        return f"{COMMON_PREFIX}/{self.family}/{self.scope}"


def find_common_causes(snapshot: ServiceSnapshot, symptoms: DetectedSymptoms) -> tuple[CommonCause, ...]:
    """Return the families that more than half of the hosts of an origin or a version show.

    Once a family has a finding, its pending symptoms count as well: hosts that fail together do not fail in
    the same second.
    """
    if snapshot.is_registry_stale:
        family, hosts = FAMILY[HealthVerdict.NOT_REPORTING], len(snapshot.hosts)
        return (CommonCause(family, REGISTRY_SCOPE, hosts, hosts),)
    families = {FAMILY[f.kind] for f in symptoms.findings if f.kind in FAMILY}
    populations = _populations([host for host in snapshot.hosts if not host.exemption_reason])
    return tuple(_iterate_causes(families, populations, symptoms.suspects))


def suppressed_origins(keys: Iterable[str]) -> frozenset[str]:
    """Return the origins where these open incidents suppress restarts and replacements."""
    origins: set[str] = set()
    for key in keys:
        if key.startswith(f"{COMMON_PREFIX}/"):
            site = names.ORIGIN_ON_PREMISES
            origins.update((site,) if key.endswith(f"/{site}") else ORIGINS)
    return frozenset(origins)


def _iterate_causes(
    families: set[str], populations: Mapping[str, frozenset[str]], suspects: Mapping[str, frozenset[str]]
) -> Iterator[CommonCause]:
    for family in sorted(families):
        affected_hosts = suspects.get(family, frozenset())
        explained: set[str] = set()
        # Versions first: an origin whose affected hosts are all explained by a version is not reported again.
        for scope, members in sorted(populations.items(), key=lambda item: (item[0] in ORIGINS, item[0])):
            affected = affected_hosts & members
            if not is_shared_cause(len(affected), len(members)) or affected <= explained:
                continue
            explained |= affected
            yield CommonCause(family, scope, len(affected), len(members))


def _populations(hosts: list[WorkerHost]) -> dict[str, frozenset[str]]:
    members: dict[str, set[str]] = {}
    for host in hosts:
        members.setdefault(host.origin, set()).add(host.id)
        for version in host.versions:
            members.setdefault(f"version {version}", set()).add(host.id)
    return {scope: frozenset(ids) for scope, ids in members.items()}
