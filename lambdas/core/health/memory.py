"""What the health checker remembers of a group. Losing it costs time: every verdict is reached anew.

Its size is bounded: watches are kept for suspects only, and of these for `MOST_WATCHES`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.checked import marks, name, number
from contracts.group.config import MOST_TOLD
from lambdas.core.health.model import Remedy
from lambdas.core.rollout import memory as rollouts
from lambdas.core.rollout.memory import Rollout

FORMAT: Final = 1
MOST_WATCHES: Final = 1_500
MOST_LOGGED: Final = 2_000
MOST_VERSIONS: Final = 20
MOST_INCIDENTS: Final = 50


@dataclass(frozen=True, slots=True)
class Watch:
    """A suspicion: ``value`` is what would change if it were wrong, unchanged since ``since``."""

    value: float
    since: float


@dataclass(frozen=True, slots=True)
class Treated:
    """The last that was done about a host: the step, when, and why (a `HealthVerdict`)."""

    step: Remedy
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Logged:
    """A step taken in the last day; ``young``: about an instance that had not worked for long."""

    at: float
    step: Remedy
    young: bool


@dataclass(frozen=True, slots=True)
class Open:
    """An incident that stands: since when, when last seen, what it is, and whether people were told."""

    since: float
    seen: float
    what: str
    told: bool = False


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
    return json.dumps(
        {
            "format": FORMAT,
            "watches": {key: [w.value, w.since] for key, w in memory.watches.items()},
            "treated": {host: [t.step, t.at, t.why] for host, t in memory.treated.items()},
            "log": [[entry.at, entry.step, int(entry.young)] for entry in memory.log],
            "versions": dict(memory.versions),
            "incidents": {key: _opened(one) for key, one in memory.incidents.items()},
            "over": {key: _opened(one) for key, one in memory.over.items()},
            "digestDay": memory.digest_day,
            "rollout": rollouts.dump(memory.rollout),
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def parse(text: str) -> HealthMemory:
    """Read what ``dump`` wrote; raise ``ValueError`` for all else."""
    try:
        raw: Any = json.loads(text)
        if raw["format"] != FORMAT:
            raise ValueError(f"memory has format {str(raw['format'])[:MOST_TOLD]!r}, {FORMAT} is needed")
        return HealthMemory(
            watches={key: Watch(number(v), number(s)) for key, (v, s) in raw["watches"].items()},
            treated={
                h: Treated(Remedy(s), number(at), name(why)) for h, (s, at, why) in raw["treated"].items()
            },
            log=tuple(Logged(number(at), Remedy(step), bool(young)) for at, step, young in raw["log"]),
            versions=marks(raw["versions"]),
            incidents={key: _incident(one) for key, one in raw["incidents"].items()},
            over={key: _incident(one) for key, one in raw["over"].items()},
            digest_day=int(number(raw["digestDay"])),
            rollout=rollouts.parse(raw.get("rollout")),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"memory makes no sense: {error!r}") from None


def _opened(one: Open) -> list[Any]:
    return [one.since, one.seen, one.what, int(one.told)]


def _incident(raw: Any) -> Open:
    since, seen, what, told = raw
    return Open(number(since), number(seen), name(what), bool(told))
