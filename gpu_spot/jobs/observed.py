"""What AWS and the instances said of a job at one moment; times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lambdas.core.registry_item import Worker
from userdata.agent.aws.stints import Stint


@dataclass(frozen=True, slots=True)
class JobRow:
    """The job's item in the job table, as far as people ask for it; empty or 0: it says nothing of that.

    ``state`` (``running``, ``done``, ``failed``) counts for ``revision``; ``holder`` has the lease until
    ``lease_until``; ``token`` is that of the last lease; ``retries`` is how often people let a run begin
    again.
    """

    state: str = ""
    reason: str = ""
    revision: str = ""
    changed: float = 0.0
    holder: str = ""
    lease_until: float = 0.0
    token: int = 0
    volume: str = ""
    retries: int = 0


@dataclass(frozen=True, slots=True)
class JobHost:
    """An instance of the job's group in EC2. ``is_live``: pending or running; ``market`` as in `Stint`."""

    instance: str
    instance_type: str
    zone: str
    market: str
    launched: float
    is_live: bool


@dataclass(frozen=True, slots=True)
class JobObserved:
    """A job at ``now``.

    ``run`` is the revision that the stack asks for, ``finished`` the one that has ended or was stopped;
    ``waits_for`` the dataset that must be prepared before, by the group ``prepared_by``, empty for none;
    ``mode`` what people told the controller. ``steps`` are the steps done and planned by the job's own words,
    by instance. ``stints`` are in no order, and not asked for by a mere list. ``budget`` is what the run may
    cost in US dollars, ``spent`` what it has cost by the controller's count; both 0 without a budget.
    """

    name: str
    now: float
    run: str
    finished: str
    target: int
    waits_for: str = ""
    prepared_by: str = ""
    mode: str = "automatic"
    row: JobRow = JobRow()
    workers: tuple[Worker, ...] = ()
    hosts: tuple[JobHost, ...] = ()
    stints: tuple[Stint, ...] = ()
    steps: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    budget: float = 0.0
    spent: float = 0.0

    @property
    def is_stopped(self) -> bool:
        """Whether the controller counts this run as ended, by whoever's word."""
        return bool(self.run) and self.finished == self.run

    @property
    def is_held(self) -> bool:
        """Whether the controller holds the run because its budget is spent."""
        return 0 < self.budget <= self.spent

    @property
    def verdict(self) -> str:
        """``done`` or ``failed`` where this run has ended by its own word, else empty."""
        ended = self.row.revision == self.run and self.row.state in ("done", "failed")
        return self.row.state if ended else ""

    @property
    def own_stints(self) -> tuple[Stint, ...]:
        """Those of this run, in order of time."""
        return tuple(sorted((t for t in self.stints if t.revision == self.run), key=lambda t: t.token))
