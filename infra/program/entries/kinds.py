"""All kinds of entries."""

from __future__ import annotations

from typing import Final

from infra.program.entries.cluster import kind as cluster
from infra.program.entries.service import kind as service
from infra.program.entries.shared_host import kind as shared_host
from infra.program.entries.training import kind as training
from infra.program.entries.workload import EntryKind, Workload
from infra.program.foundation import Foundation
from infra.schema import Settings
from userdata.agent.aws.permissions import Need

KINDS: Final[tuple[EntryKind, ...]] = (service, training, shared_host, cluster)


def needs(settings: Settings) -> frozenset[Need]:
    """Return the needs of all instances of the stack."""
    return frozenset().union(*(kind.needs(settings) for kind in KINDS))


def declare(settings: Settings, foundation: Foundation) -> list[Workload]:
    """Declare all entries; return those that have a capacity group."""
    return [workload for kind in KINDS for workload in kind.declare(settings, foundation)]
