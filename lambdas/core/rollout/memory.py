"""What is remembered of a roll-out, a part of what the health checker remembers of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.group.release import WorkerRelease
from contracts.stored import stored

MOST_LEFT: Final = 5


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class StartAsked:
    """A host was asked ``at`` (epoch seconds) to start its workers from ``version``."""

    version: str
    at: float


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class TrialRun:
    """A host runs the trial: whole since ``since``, when its workers had started ``starts`` times, summed up.

    ``first`` is that sum when the trial was first seen there.
    """

    since: float
    starts: int
    first: int


@stored(is_open=True, has_defaults=True)
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
