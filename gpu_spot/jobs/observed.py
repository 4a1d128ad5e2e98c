"""What AWS and the instances said of a job at one moment; times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.jobs.attempt import JobAttempt
from contracts.jobs.item import JobItem
from contracts.registry.item import Worker


def experiment_run(run: str) -> str:
    """Return the run of an experiment, its revision, by that of its group (``<revision>/<digest>``)."""
    return run.partition("/")[0]


@dataclass(frozen=True, slots=True)
class JobHost:
    """An instance of the job's group. ``is_live``: pending or running; ``market`` as in `JobAttempt`."""

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
    cost in US dollars, ``spent`` what it has cost by the controller's count; both 0 without a budget. Of an
    experiment that shares a ``group`` only its holder's worker and host are there; ``experiments`` are the
    rows of such a group's, by name.
    """

    name: str
    now: float
    run: str
    finished: str
    target: int
    waits_for: str = ""
    prepared_by: str = ""
    mode: str = "automatic"
    row: JobItem = field(default_factory=JobItem)
    workers: tuple[Worker, ...] = ()
    hosts: tuple[JobHost, ...] = ()
    stints: tuple[JobAttempt, ...] = ()
    steps: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    budget: float = 0.0
    spent: float = 0.0
    group: str = ""
    experiments: Mapping[str, JobItem] = field(default_factory=dict)

    @property
    def is_stopped(self) -> bool:
        """Whether the controller counts this run as ended, by whoever's word."""
        return bool(self.run) and self.finished == self.run

    @property
    def is_held(self) -> bool:
        """Whether the controller holds the run because its budget is spent."""
        return 0 < self.budget <= self.spent

    @property
    def experiments_in_words(self) -> str:
        """How many of a group's experiments are done, have failed, are held; empty where it has none."""
        if not self.experiments:
            return ""
        own = [row for row in self.experiments.values() if row.revision == experiment_run(self.run)]
        done, failed = (sum(row.state == state for row in own) for state in ("done", "failed"))
        held = sum(row.state == "running" and row.lease_until > self.now for row in own)
        told = f"{done} of {len(self.experiments)} experiments done, {held} running"
        return f"{told}, {failed} failed" if failed else told

    @property
    def verdict(self) -> str:
        """``done`` or ``failed`` where this run has ended by its own word, else empty."""
        ended = self.row.revision == self.run and self.row.state in ("done", "failed")
        return self.row.state if ended else ""

    @property
    def own_stints(self) -> tuple[JobAttempt, ...]:
        """Those of this run, in order of time."""
        return tuple(sorted((t for t in self.stints if t.revision == self.run), key=lambda t: t.token))


def experiment_of(group: JobObserved, name: str) -> JobObserved:
    """Return one experiment as a job: with its row, and of the group's instances the one that holds it."""
    row, run = group.experiments[name], experiment_run(group.run)
    holder = row.holder if row.lease_until > group.now else ""
    return replace(
        group,
        name=name,
        run=run,
        finished=run if group.is_stopped else "",
        row=row,
        workers=tuple(one for one in group.workers if one.instance == holder),
        hosts=tuple(one for one in group.hosts if one.instance == holder),
        steps={instance: told for instance, told in group.steps.items() if instance == holder},
        group=group.name,
        experiments={},
    )
