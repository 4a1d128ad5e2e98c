"""What is remembered of a roll-out, a part of what the health checker remembers of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.checked import name, number
from contracts.group import release
from contracts.group.release import WorkerRelease

MOST_LEFT: Final = 5


@dataclass(frozen=True, slots=True)
class StartAsked:
    """A host was asked ``at`` (epoch seconds) to start its workers from ``version``."""

    version: str
    at: float


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A host runs the trial: whole since ``since``, when its workers had started ``starts`` times, summed up.

    ``first`` is that sum when the trial was first seen there.
    """

    since: float
    starts: int
    first: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """``stable`` is what has proved itself, ``trial`` what is tried, ``moved`` when the last step was made.

    ``runs`` are hosts with the trial, ``proven`` on which host which version has proved itself. ``refused``
    is the version that was taken back, for the reason ``why``; ``left`` are versions from which workers go
    back. ``written`` is a hash of the row as it was written last.
    """

    stable: WorkerRelease | None = None
    trial: WorkerRelease | None = None
    moved: float = 0.0
    asked: Mapping[str, StartAsked] = field(default_factory=dict)
    runs: Mapping[str, TrialRun] = field(default_factory=dict)
    proven: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    why: str = ""
    left: tuple[str, ...] = ()
    written: str = ""


def dump(rollout: Rollout) -> dict[str, Any]:
    """Return it as JSON knows it."""
    return {
        "stable": rollout.stable and release.as_json(rollout.stable),
        "trial": rollout.trial and release.as_json(rollout.trial),
        "moved": rollout.moved,
        "asked": {host: [one.version, one.at] for host, one in rollout.asked.items()},
        "runs": {host: [one.since, one.starts, one.first] for host, one in rollout.runs.items()},
        "proven": dict(rollout.proven),
        "refused": rollout.refused,
        "why": rollout.why,
        "left": list(rollout.left),
        "written": rollout.written,
    }


def parse(raw: Any) -> Rollout:
    """Read what `dump` made, nothing where there was none; raise ``ValueError`` or ``KeyError``."""
    if raw is None:
        return Rollout()
    return Rollout(
        stable=raw["stable"] and release.of_json(raw["stable"]),
        trial=raw["trial"] and release.of_json(raw["trial"]),
        moved=number(raw["moved"]),
        asked={host: StartAsked(name(version), number(at)) for host, (version, at) in raw["asked"].items()},
        runs={
            host: TrialRun(number(since), int(starts), int(first))
            for host, (since, starts, first) in raw["runs"].items()
        },
        proven={host: name(version) for host, version in raw["proven"].items()},
        refused=name(raw["refused"]),
        why=name(raw["why"]),
        left=tuple(map(name, raw["left"])),
        written=name(raw["written"]),
    )
