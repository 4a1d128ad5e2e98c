"""The state of a job at one moment, as read from AWS and the worker registry. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.group.config import RunRules
from contracts.jobs.attempt import JobAttempt
from contracts.jobs.item import JobItem
from contracts.jobs.run import RunRequest, RunState
from contracts.registry.item import Worker


def experiment_run(run: str) -> str:
    """Return the revision of an experiment from its group's run (``<revision>/<digest>``)."""
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
class JobSnapshot:
    """A job at ``now``.

    ``run`` is the desired revision, ``finished`` the one that has finished or was stopped; ``waits_for`` the
    dataset that group ``prepared_by`` must prepare first, empty for none; ``mode`` the controller's mode.
    ``steps`` are the steps done and planned by instance, as the job reports them. ``attempts`` are unordered,
    and empty in lists. ``budget`` is the budget of the run in US dollars, ``spent`` its cost as counted by
    the controller; both 0 without a budget. For an experiment that shares a ``group`` only the worker and
    host that hold its lease are included; ``experiments`` are the items of such a group's experiments, by
    name; ``nodes`` those of the nodes of a job of several. A job with a schedule has ``runs``, its newest run
    ``run_state``, the newest ``requests`` for one by parameter, and the ``request_error`` of invalid ones.
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
    attempts: tuple[JobAttempt, ...] = ()
    steps: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    budget: float = 0.0
    spent: float = 0.0
    group: str = ""
    experiments: Mapping[str, JobItem] = field(default_factory=dict)
    nodes: Mapping[str, JobItem] = field(default_factory=dict)
    runs: RunRules | None = None
    run_state: RunState | None = None
    requests: Mapping[str, RunRequest] = field(default_factory=dict)
    request_error: str = ""

    @property
    def awaits_first_run(self) -> bool:
        """Whether the schedule has not started a run yet."""
        return self.run_state is not None and self.run_state.request is None

    @property
    def is_in_progress(self) -> bool:
        """Whether a run has begun and not ended, for the controller."""
        return not (self.awaits_first_run or self.is_stopped)

    @property
    def pending(self) -> Mapping[str, str]:
        """Times of the requests that neither became a run nor were dropped, by parameter, in their order."""
        state = self.run_state
        times = sorted((request.time, leaf, request) for leaf, request in self.requests.items())
        return {
            leaf: time for time, leaf, request in times if state and not state.is_considered(leaf, request)
        }

    @property
    def request_note(self) -> str:
        """What becomes of the newest request for a run; empty if it is the run."""
        state = self.run_state
        if self.request_error:
            return self.request_error
        if self.pending:
            waits = self.is_in_progress and self.runs is not None and self.runs.overlap == "wait"
            after = " and waits for the end of this one" if waits else ""
            return f"a run is requested for {', then for '.join(self.pending.values())}{after}"
        if state and state.dropped and state.dropped == state.newest:
            return f"the run of {state.dropped} was skipped"
        return ""

    @property
    def way_to_repeat(self) -> str:
        """How a run that is done is run again."""
        return "a new revision" if self.runs is None else "`gpu-spot jobs run`"

    @property
    def present_nodes(self) -> int:
        """Number of nodes whose lease an instance has; an instance that stands by is none."""
        return sum(bool(row.holder) and row.lease_expires_at > self.now for row in self.nodes.values())

    @property
    def node_summary(self) -> str:
        """How many nodes of a job are present; empty for a job on one instance."""
        limits = self.row.nodes
        if limits is None:
            return ""
        minimum = f", needs {limits.min}" if limits.min < limits.max else ""
        return f"{self.present_nodes} of {limits.max} nodes{minimum}"

    @property
    def is_stopped(self) -> bool:
        """Whether the controller counts this run as finished, for any reason."""
        return bool(self.run) and self.finished == self.run

    @property
    def is_over_budget(self) -> bool:
        """Whether the controller stops the run because its budget is spent."""
        return 0 < self.budget <= self.spent

    @property
    def experiment_summary(self) -> str:
        """How many of a group's experiments are done, running and failed; empty if it has none."""
        if not self.experiments:
            return ""
        rows = [row for row in self.experiments.values() if row.revision == experiment_run(self.run)]
        done, failed = (sum(row.state == state for row in rows) for state in ("done", "failed"))
        running = sum(row.state == "running" and row.lease_expires_at > self.now for row in rows)
        summary = f"{done} of {len(self.experiments)} experiments done, {running} running"
        return f"{summary}, {failed} failed" if failed else summary

    @property
    def outcome(self) -> str:
        """``done`` or ``failed`` if the job has recorded that for this run, else empty."""
        ended = self.row.revision == self.run and self.row.state in ("done", "failed")
        return self.row.state if ended else ""

    @property
    def run_attempts(self) -> tuple[JobAttempt, ...]:
        """The attempts of this run, ordered by time."""
        return tuple(sorted((t for t in self.attempts if t.revision == self.run), key=lambda t: t.token))


def experiment_of(group: JobSnapshot, name: str) -> JobSnapshot:
    """Return one experiment or node as a job: its item, and the instance that holds its lease."""
    run = experiment_run(group.run)
    if name in group.nodes:  # a node's item has no state: the job has
        job, node = group.row, group.nodes[name]
        row = replace(
            job,
            holder=node.holder,
            lease_expires_at=node.lease_expires_at,
            token=node.token,
            nodes=node.nodes,
        )
    else:
        row = group.experiments[name]
    holder = row.holder if row.lease_expires_at > group.now else ""
    return replace(
        group,
        name=name,
        run=run,
        finished=run if group.is_stopped else "",
        row=row,
        workers=tuple(worker for worker in group.workers if worker.instance == holder),
        hosts=tuple(worker for worker in group.hosts if worker.instance == holder),
        steps={instance: steps for instance, steps in group.steps.items() if instance == holder},
        group=group.name,
        experiments={},
        nodes={},
    )
