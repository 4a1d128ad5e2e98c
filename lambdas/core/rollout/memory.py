"""State of a rollout, stored as a part of the health checker's memory of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.group.release import WorkerRelease
from contracts.stored import stored
from lambdas.core.rollout.comparison import Comparison

MAX_ABANDONED_VERSIONS: Final = 5


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A request to restart a host's workers with ``version``."""

    version: str
    requested_at: float


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class CandidateRun:
    """A host that runs the candidate.

    Attributes:
        since: since when all its workers run the candidate without a restart (epoch seconds).
        starts: the total of its workers' starts at that time.
        first_starts: the same total when the candidate was first observed on the host.
    """

    since: float
    starts: int
    first_starts: int


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Rollout:
    """The progress of a rollout.

    Attributes:
        stable: the verified release.
        candidate: the release under rollout; None without a rollout.
        last_step_at: when the last step was made (epoch seconds).
        requested_restarts: the last restart request by host.
        runs: hosts that run the candidate.
        verified: the version that was verified on a host, by host.
        rejected: the version that was rolled back, because of ``rejection_reason``.
        abandoned_versions: versions that hosts are moved away from.
        comparison: the candidate in comparison with the release before it.
        written_hash: hash of the registry row as it was last written.
    """

    stable: WorkerRelease | None = None
    candidate: WorkerRelease | None = None
    last_step_at: float = 0.0
    requested_restarts: Mapping[str, RestartRequest] = field(default_factory=dict)
    runs: Mapping[str, CandidateRun] = field(default_factory=dict)
    verified: Mapping[str, str] = field(default_factory=dict)
    rejected: str = ""
    rejection_reason: str = ""
    abandoned_versions: tuple[str, ...] = ()
    comparison: Comparison = field(default_factory=Comparison)
    written_hash: str = ""
