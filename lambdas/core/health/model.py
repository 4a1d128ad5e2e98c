"""What the health checker sees of a group, and what can be wrong: frozen values.

Times are epoch seconds, durations seconds. A *host* is an instance, or a machine of the company's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from contracts import names
from contracts.registry.item import Worker
from contracts.registry.queue_state import Backlog

ORIGINS: Final = (names.ORIGIN_AWS, names.ORIGIN_ON_PREMISES)


class HealthVerdict(StrEnum):
    """What can be wrong, the gravest first: of several on a host the first counts."""

    XID = "xid"
    SILENT = "silent"
    CRASHING = "crashing"
    MISSING = "missing"
    STUCK = "stuck"
    IDLE = "idle-gpu"
    CLOCK = "clock"
    VERSION = "old-version"


class Remedy(StrEnum):
    """What is done about a host."""

    RESTART = "restart"
    REPLACE = "replace"


RESTARTABLE: Final = frozenset({HealthVerdict.STUCK, HealthVerdict.IDLE})
"""A restart is tried first. Who is silent does not hear of it, who crashes is started anew by its agent, and
a GPU after a grave Xid needs more."""
ONLY_TOLD: Final = frozenset({HealthVerdict.CLOCK, HealthVerdict.VERSION})
"""Told to people; nothing is done about it."""
FAMILY: Final[Mapping[HealthVerdict, str]] = {
    HealthVerdict.SILENT: "unheard",
    HealthVerdict.MISSING: "unheard",
    HealthVerdict.STUCK: "unfinished",
    HealthVerdict.IDLE: "unfinished",
    HealthVerdict.CRASHING: "crashing",
    HealthVerdict.XID: "xid",
}
"""Kinds that one cause behind many hosts may show as, this one here and that one there."""


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """One machine with workers.

    ``expected`` is how many workers it should show, 0 where nobody knows. ``launched_at`` is None on
    premises. ``spared`` says why it is let alone: it drains, AWS takes it, it was released. ``unclear``: rows
    of its workers make no sense, so that who is missing may be there.
    """

    id: str
    workers: tuple[Worker, ...] = ()
    expected: int = 0
    launched_at: float | None = None
    spared: str = ""
    unclear: bool = False
    spot: bool = False

    @property
    def on_premises(self) -> bool:
        """Whether it is the company's own: it can be told to restart a worker, and not be replaced."""
        return self.launched_at is None

    @property
    def origin(self) -> str:
        """Where it is, as metrics name it."""
        return names.ORIGIN_ON_PREMISES if self.on_premises else names.ORIGIN_AWS

    @property
    def versions(self) -> frozenset[str]:
        """What its workers run, as far as they tell."""
        return frozenset(w.pulse.version for w in self.workers if w.pulse is not None and w.pulse.version)


@dataclass(frozen=True, slots=True)
class Sight:
    """A group at one moment.

    ``backlog`` is None where nothing, or nothing readable, is told of the queue. ``boot_seconds`` is what a
    boot takes by what the controller has learned. ``registry_silent``: of the whole stack no worker is heard.
    ``may_act`` is false where people have taken over.
    """

    now: float
    hosts: tuple[WorkerHost, ...]
    backlog: Backlog | None = None
    boot_seconds: float = 0.0
    registry_silent: bool = False
    may_act: bool = True

    @property
    def requests_wait(self) -> bool:
        """Whether it is known that requests wait in the queue now."""
        backlog = self.backlog
        return backlog is not None and backlog.is_fresh(self.now) and backlog.ready > 0


@dataclass(frozen=True, slots=True)
class HostFinding:
    """What is wrong with a host, or with one of its workers (``slots``), and since when it is seen."""

    kind: HealthVerdict
    host: str
    since: float
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Restart:
    """A worker that is to be started anew; ``group`` is its partition of the registry."""

    group: str
    instance: str
    slot: int


@dataclass(frozen=True, slots=True)
class Incident:
    """What needs a person, and stands since ``since``; ``key`` tells it from others, ``what`` says it."""

    key: str
    since: float
    what: str


@dataclass(frozen=True, slots=True)
class Facts:
    """A group in numbers, for metrics and the daily message; the steps are those of the last day."""

    ready: Mapping[str, int] = field(default_factory=dict)
    draining: Mapping[str, int] = field(default_factory=dict)
    silent: Mapping[str, int] = field(default_factory=dict)
    instances: int = 0
    spot: int = 0
    restarts: int = 0
    replacements: int = 0
