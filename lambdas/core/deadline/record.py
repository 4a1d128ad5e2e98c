"""What is remembered of a job under a deadline: how far it is, how fast, and what it has met.

Progress is what the job's script told last, never a guess: who tells nothing stands still, and who resumes
from an older checkpoint is as far as that. Losing the record costs time: the job counts as unknown until it
is measured again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts.stored import RaisedTo, stored
from lambdas.core.deadline.experience import Experience, Seen
from lambdas.core.model import Instance, Observation, RefusalKind, Side

LONGEST_CHANGEOVER: Final = 3600.0
"""A start whose first step is told later says nothing of starts: its script seldom tells."""
LONGEST_LOSS: Final = 3600.0
"""So many seconds of work are kept in reserve at most for what an interruption may cost."""
PACE_SECONDS: Final = 3600.0
"""The rate counts as one more experience after so many seconds of work."""
GRANTED_SECONDS: Final = 60.0
"""On-demand that comes so soon after it was asked for was never refused."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class JobRecord:
    """Soft state of a job under a deadline. Times are epoch seconds, durations seconds.

    ``run`` is the revision that it is about: another begins at step 0, at a rate that nobody knows, among
    the same ``changeovers`` and ``refusals``. ``step`` of ``steps`` was told at ``told_at`` by the instance
    ``worker``; ``steps`` is 0 before any was. ``rate`` and ``best`` are the last measured steps a second, 0
    before any were. ``rates`` has one for each hour of work, the last at ``paced_at``. ``lost`` are the most
    seconds of work that a resumed script had to do again. ``asked_at`` is since when on-demand has been asked
    for and is not there, ``on_demand`` the instance that came last.
    """

    run: str = ""
    step: int = 0
    steps: int = 0
    told_at: float = 0.0
    worker: str = ""
    rate: float = 0.0
    best: float = 0.0
    rates: Seen = field(default_factory=Seen)
    paced_at: float = 0.0
    lost: Annotated[float, RaisedTo(0.0)] = 0.0
    changeovers: Seen = field(default_factory=Seen)
    refusals: Seen = field(default_factory=Seen)
    asked_at: float | None = None
    on_demand: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether it is known how far the job is and how fast."""
        return self.steps > 0 and self.rate > 0

    @property
    def left(self) -> float:
        """The seconds of work that are left, at the rate measured last."""
        return (self.steps - self.step) / self.rate

    def experience(self) -> Experience:
        """Return what was met; paces in parts of the rate measured last."""
        return Experience(self.changeovers, self.refusals, self.rates.scaled(1 / self.rate), measured=True)


def at_work(observation: Observation) -> Instance | None:
    """Return the instance whose worker has the job, the newest of several."""
    ready = [i for i in observation.instances if i.ready_since is not None]
    return max(ready, key=lambda i: (i.ready_since or 0.0, i.id), default=None)


def follow(record: JobRecord, observation: Observation, now: float) -> JobRecord:
    """Return the record after one look; an empty one for a group without a deadline."""
    group = observation.group
    if group.deadline is None:
        return JobRecord()
    if record.run != group.run:
        record = JobRecord(run=group.run, changeovers=record.changeovers, refusals=record.refusals)
    return _bought(_worked(record, at_work(observation)), observation, now)


def _worked(record: JobRecord, worker: Instance | None) -> JobRecord:
    """Return the record with what the worker tells."""
    told = None if worker is None else worker.progress
    if worker is None or told is None or (worker.id == record.worker and told.at < record.told_at):
        return record
    if worker.id != record.worker:
        record = _moved(record, worker)
    lost = record.lost
    if record.rate > 0 and told.step < record.step:
        lost = max(lost, min(LONGEST_LOSS, (record.step - told.step) / record.rate))
    rate, best = (told.rate, told.best) if told.rate > 0 else (record.rate, record.best)
    rates, paced_at = record.rates, record.paced_at
    if told.rate > 0 and told.at - paced_at >= PACE_SECONDS:
        rates, paced_at = rates.adding(rate), told.at
    return replace(
        record,
        step=told.step,
        steps=told.steps,
        told_at=told.at,
        rate=rate,
        best=best,
        rates=rates,
        paced_at=paced_at,
        lost=lost,
    )


def _moved(record: JobRecord, worker: Instance) -> JobRecord:
    """Return the record once another instance goes on: how long that took.

    From the launch to the first step, less what the new one stood by while the old one still worked.
    """
    told = worker.progress
    assert told is not None, "who tells nothing is not counted"
    heard = worker.launched_at if worker.ready_since is None else worker.ready_since
    took = (heard - worker.launched_at) + (told.began - max(heard, min(record.told_at, told.began)))
    seen = 0 < took <= LONGEST_CHANGEOVER
    changeovers = record.changeovers.adding(took) if seen else record.changeovers
    return replace(record, worker=worker.id, changeovers=changeovers, paced_at=told.began)


def _bought(record: JobRecord, observation: Observation, now: float) -> JobRecord:
    """Return the record with what became of requests for on-demand."""
    came = max((i for i in observation.on(Side.FALLBACK)), key=lambda i: (i.launched_at, i.id), default=None)
    asked = record.asked_at
    if came is not None:
        if came.id == record.on_demand:
            return record if asked is None else replace(record, asked_at=None)
        waited = 0.0 if asked is None else came.launched_at - asked
        waited = waited if waited > GRANTED_SECONDS else 0.0
        return replace(record, refusals=record.refusals.adding(waited), on_demand=came.id, asked_at=None)
    if observation.fallback_desired > 0:
        return record if asked is not None else replace(record, asked_at=now)
    if asked is None:
        return record
    refusal = observation.refusal(Side.FALLBACK)
    was_refused = refusal is not None and refusal.kind is RefusalKind.CAPACITY and refusal.at >= asked
    refusals = record.refusals.adding(now - asked) if was_refused else record.refusals
    return replace(record, refusals=refusals, asked_at=None)


def check(record: JobRecord) -> None:
    """Raise ``ValueError`` for a stored record that no job can have left."""
    if not (0 <= record.step <= record.steps and 0 <= record.rate <= record.best and record.rates.least > 0):
        raise ValueError(f"progress {record!r:.80} makes no sense")
    for seen in (record.rates, record.changeovers, record.refusals):
        if seen.count and not (seen.count >= 1 and 0 <= seen.least <= seen.most):
            raise ValueError(f"experience {seen!r:.80} makes no sense")
