"""What the health checker remembers of a group. Losing it costs time: every verdict is reached anew.

Its size is bounded: watches are kept for suspects only, and of these for `MOST_WATCHES`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts import codec
from contracts.stored import stored
from lambdas.core.health.model import Remedy
from lambdas.core.rollout.memory import Rollout

FORMAT: Final = 1
MOST_WATCHES: Final = 1_500
MOST_LOGGED: Final = 2_000
MOST_VERSIONS: Final = 20
MOST_INCIDENTS: Final = 50


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Watch:
    """A suspicion: ``value`` is what would change if it were wrong, unchanged since ``since``."""

    value: float
    since: float


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Treated:
    """The last that was done about a host: the step, when, and why (a `HealthVerdict`)."""

    step: Remedy
    at: float
    why: str


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Logged:
    """A step taken in the last day; ``young``: about an instance that had not worked for long."""

    at: float
    step: Remedy
    young: bool


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Open:
    """An incident that stands: since when, when last seen, what it is, and whether people were told."""

    since: float
    seen: float
    what: str
    told: bool = False


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HealthMemory:
    """Soft state of one group.

    ``watches`` are by kind and worker or host, ``treated`` by host, ``versions`` when a version was first
    seen (by origin and version), ``incidents`` by key. ``over`` are incidents that ended and of whose end
    people were not told yet. ``digest_day`` is the last day (since 1970) with a daily message.
    """

    watches: Mapping[str, Watch] = field(default_factory=dict)
    treated: Mapping[str, Treated] = field(default_factory=dict)
    log: tuple[Logged, ...] = ()
    versions: Mapping[str, float] = field(default_factory=dict)
    incidents: Mapping[str, Open] = field(default_factory=dict)
    over: Mapping[str, Open] = field(default_factory=dict)
    digest_day: int = 0
    rollout: Rollout = field(default_factory=Rollout)


def dump(memory: HealthMemory) -> str:
    """Return the memory as JSON; equal memories as equal text."""
    stored = {"format": FORMAT, **codec.dump(memory)}
    return json.dumps(stored, sort_keys=True, separators=(",", ":"))


def parse(text: str) -> HealthMemory:
    """Read what ``dump`` wrote; raise ``ValueError`` for all else."""
    return codec.parse_versioned(HealthMemory, text, FORMAT)
