"""Runs of a job with a ``schedule``: the parameters ``request``, ``firing`` and ``run`` of its group.

``gpu-spot jobs run`` writes ``request``, EventBridge Scheduler ``firing``. The controller makes each the
job's run, which the instances read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from contracts import limits
from contracts.limits import AtLeast, Length, Matches

RunTime: TypeAlias = Annotated[str, Matches(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ")]
"""As EventBridge Scheduler writes it (EventBridge Scheduler user guide, "Adding context attributes")."""
Argument: TypeAlias = Annotated[str, Matches(r"--[A-Za-z0-9][A-Za-z0-9_.-]*=[^\x00-\x1f\x7f]*")]

INITIAL: Final = "{}"
"""Initial value of these parameters."""
SCHEDULED: Final = '{"time": "<aws.scheduler.scheduled-time>"}'
"""The request of a schedule: EventBridge Scheduler replaces the keyword with the time of the firing."""
RUN_FOLDER: Final = r"2\d{7}T\d{6}Z"
"""Name of the directory of a run's checkpoints: its time without separators."""


@dataclass(frozen=True)
class RunRequest:
    """A request for a run; ``environment`` and ``arguments`` are added to the job's for this run only."""

    time: RunTime
    environment: Mapping[limits.EnvironmentName, limits.EnvironmentValue] = field(default_factory=dict)
    arguments: Annotated[tuple[Argument, ...], Length(0, 64)] = ()

    def __post_init__(self) -> None:
        """Require an existing time, and variables that a stack file may set."""
        try:
            datetime.fromisoformat(self.time)
        except ValueError:
            raise ValueError(f"time must be an existing date and time, not {self.time!r}") from None
        if reserved := [name for name in self.environment if name.startswith(limits.RESERVED_VARIABLES)]:
            raise ValueError(f"environment: {reserved[0]} is reserved")

    @property
    def at(self) -> float:
        """The time in epoch seconds."""
        return datetime.fromisoformat(self.time).timestamp()


@dataclass(frozen=True)
class RunState:
    """The newest run of a job, and the newest requests that are none; an empty value: there is none.

    Attributes:
        request: The request that became the run.
        revision: Commit of the stack file when the run began; a later one is for the next run.
        began: When the request became the run, in epoch seconds.
        waits: Time of the newest request that waited for the end of a run.
        dropped: Time of the newest request that starts no run.
        considered: Time of the newest request that is the run, or starts none, by parameter.
    """

    request: RunRequest | None = None
    revision: str = ""
    began: Annotated[float, AtLeast(0)] = 0.0
    waits: str = ""
    dropped: str = ""
    considered: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Id of the run, as the job table and the parameter ``finished`` have it; empty without one."""
        return run_id(self.revision, folder(self.request.time)) if self.request else ""

    @property
    def newest(self) -> str:
        """Time of the newest request that is the run, or starts none; times sort as texts."""
        return max(self.request.time if self.request else "", self.dropped)

    def is_considered(self, parameter: str, request: RunRequest) -> bool:
        """Return whether the request in ``parameter`` is the run, or starts none."""
        return request.time <= self.considered.get(parameter, self.newest)


def folder(time: str) -> str:
    """Return the name of the directory of a run's checkpoints, which needs no quoting in a mount."""
    return time.replace("-", "").replace(":", "")


def run_id(revision: str, folder: str) -> str:
    """Return the id of a run; ``folder`` is empty for a job without a schedule."""
    return f"{revision}@{folder}" if folder else revision


def time_of(at: float) -> str:
    """Return epoch seconds as a time of a request."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
