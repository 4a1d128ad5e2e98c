"""Record of a job with a deadline: its progress, its rate, and measurements for estimates.

Progress is the last report of the job's script, never extrapolated: without reports it does not advance, and
after a restart from an older checkpoint it goes back. A lost record costs time: the job counts as unmeasured
until it reports again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts.registry.item import Progress
from contracts.stored import RaisedTo, stored
from lambdas.core.deadline.experience import Experience, SampleStatistics
from lambdas.core.model import GroupRole, Instance, Observation

MAX_RESTART_OVERHEAD_SECONDS: Final = 3600.0
"""A longer time to the first report is not a restart overhead: the script rarely reports."""
MAX_LOST_WORK_SECONDS: Final = 3600.0
"""Maximum reserve for the work that an interruption loses."""
RATE_SAMPLE_SECONDS: Final = 3600.0
"""Work between two samples of the rate."""
PROMPT_LAUNCH_SECONDS: Final = 60.0
"""On-Demand that launches within this time after the request has no launch delay."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class JobRecord:
    """Soft state of a job with a deadline. Times are epoch seconds, durations seconds.

    Attributes:
        run: Revision of the job. A new revision resets all except ``restart_overheads`` and
            ``launch_delays``.
        step: Last reported step, of ``steps`` (0 before the first report).
        reported_at: Time of that report.
        worker: Instance that sent it.
        rate: Last measured steps per second, with ``best_rate``; 0 before any.
        rates: Statistics with one sample per hour of work, the last at ``rate_sampled_at``.
        max_lost_seconds: Maximum work that was repeated after a restart.
        restart_overheads: Statistics of restart overheads.
        launch_delays: Statistics of the delays of On-Demand launches.
        on_demand_requested_at: Time of an On-Demand request that is not fulfilled.
        on_demand_instance: Newest On-Demand instance.
    """

    run: str = ""
    step: int = 0
    steps: int = 0
    reported_at: float = 0.0
    worker: str = ""
    rate: float = 0.0
    best_rate: float = 0.0
    rates: SampleStatistics = field(default_factory=SampleStatistics)
    rate_sampled_at: float = 0.0
    max_lost_seconds: Annotated[float, RaisedTo(0.0)] = 0.0
    restart_overheads: SampleStatistics = field(default_factory=SampleStatistics)
    launch_delays: SampleStatistics = field(default_factory=SampleStatistics)
    on_demand_requested_at: float | None = None
    on_demand_instance: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether progress and rate are known."""
        return self.steps > 0 and self.rate > 0

    @property
    def remaining_seconds(self) -> float:
        """Remaining work in seconds at the last rate."""
        return (self.steps - self.step) / self.rate

    def experience(self) -> Experience:
        """Return the measurements; throughputs are relative to the last rate."""
        throughputs = self.rates.scaled(1 / self.rate)
        return Experience(self.restart_overheads, self.launch_delays, throughputs, is_measured=True)


def working_instance(observation: Observation) -> Instance | None:
    """Return the newest instance whose worker is ready, which works on the job."""
    ready = [i for i in observation.instances if i.ready_since is not None]
    return max(ready, key=lambda i: (i.ready_since or 0.0, i.id), default=None)


def update(record: JobRecord, observation: Observation, now: float) -> JobRecord:
    """Return the record after an observation; an empty one for a group without a deadline."""
    group = observation.group
    if not group.config.deadline:
        return JobRecord()
    if record.run != group.config.run:
        record = JobRecord(
            run=group.config.run,
            restart_overheads=record.restart_overheads,
            launch_delays=record.launch_delays,
        )
    record = _with_progress(record, working_instance(observation))
    return _with_launch_delay(record, observation, now)


def _with_progress(record: JobRecord, worker: Instance | None) -> JobRecord:
    """Return the record with the progress that the worker reports."""
    progress = None if worker is None else worker.progress
    if worker is None or progress is None:
        return record
    if worker.id == record.worker and progress.reported_at < record.reported_at:
        return record
    if worker.id != record.worker:
        record = _with_restart(record, worker, progress)
    max_lost_seconds = record.max_lost_seconds
    if record.rate > 0 and progress.step < record.step:
        lost_seconds = min(MAX_LOST_WORK_SECONDS, (record.step - progress.step) / record.rate)
        max_lost_seconds = max(max_lost_seconds, lost_seconds)
    rate, best_rate = record.rate, record.best_rate
    rates, rate_sampled_at = record.rates, record.rate_sampled_at
    if progress.rate > 0:
        rate, best_rate = progress.rate, progress.best_rate
        if progress.reported_at - rate_sampled_at >= RATE_SAMPLE_SECONDS:
            rates, rate_sampled_at = rates.with_sample(rate), progress.reported_at
    return replace(
        record,
        step=progress.step,
        steps=progress.steps,
        reported_at=progress.reported_at,
        rate=rate,
        best_rate=best_rate,
        rates=rates,
        rate_sampled_at=rate_sampled_at,
        max_lost_seconds=max_lost_seconds,
    )


def _with_restart(record: JobRecord, worker: Instance, progress: Progress) -> JobRecord:
    """Return the record after another instance took over the job, with the restart overhead.

    The overhead is the time from launch to the first step, without the time in standby while the predecessor
    still worked.
    """
    first_step_at = progress.first_reported_at
    ready_at = worker.launched_at if worker.ready_since is None else worker.ready_since
    boot = ready_at - worker.launched_at
    overhead = boot + first_step_at - max(ready_at, min(record.reported_at, first_step_at))
    overheads = record.restart_overheads
    if 0 < overhead <= MAX_RESTART_OVERHEAD_SECONDS:
        overheads = overheads.with_sample(overhead)
    return replace(record, worker=worker.id, restart_overheads=overheads, rate_sampled_at=first_step_at)


def _with_launch_delay(record: JobRecord, observation: Observation, now: float) -> JobRecord:
    """Return the record with the outcome of On-Demand requests."""
    fallback = observation.instances_of(GroupRole.FALLBACK)
    newest = max(fallback, key=lambda i: (i.launched_at, i.id), default=None)
    requested_at = record.on_demand_requested_at
    if newest is not None:
        if newest.id == record.on_demand_instance:
            return record if requested_at is None else replace(record, on_demand_requested_at=None)
        delay = 0.0 if requested_at is None else newest.launched_at - requested_at
        delay = delay if delay > PROMPT_LAUNCH_SECONDS else 0.0
        return replace(
            record,
            launch_delays=record.launch_delays.with_sample(delay),
            on_demand_instance=newest.id,
            on_demand_requested_at=None,
        )
    if observation.fallback_desired > 0:
        return record if requested_at is not None else replace(record, on_demand_requested_at=now)
    if requested_at is None:
        return record
    # The request was withdrawn before an instance launched.
    failures = observation.launch_failures_of(GroupRole.FALLBACK)
    delays = record.launch_delays
    if any(not f.kind.withholds_on_demand and f.failed_at >= requested_at for f in failures):
        delays = delays.with_sample(now - requested_at)
    return replace(record, launch_delays=delays, on_demand_requested_at=None)


def check(record: JobRecord) -> None:
    """Raise ``ValueError`` for an impossible stored record."""
    is_possible = 0 <= record.step <= record.steps and 0 <= record.rate <= record.best_rate
    if not (is_possible and record.rates.minimum > 0):
        raise ValueError(f"the stored state has impossible progress: {record!r:.80}")
    for statistics in (record.rates, record.restart_overheads, record.launch_delays):
        if statistics.count and not (statistics.count >= 1 and 0 <= statistics.minimum <= statistics.maximum):
            raise ValueError(f"the stored state has impossible statistics: {statistics!r:.80}")
