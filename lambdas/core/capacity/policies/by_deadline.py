"""A training job with a date: the deadline policy asked about a group's situation, its answer as a plan.

What the policy calls a pool that gives spot is here an instance that the primary group holds: nobody sees a
pool without asking it, and who asks buys. So idle means to ask for spot and take what comes, and beside
on-demand spot is asked for only where it would be moved to soon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.memory import UNKNOWN_BOOT
from lambdas.core.capacity.plan import Plan
from lambdas.core.deadline.expected_cost import ExpectedJobCost
from lambdas.core.deadline.model import Choice, DeadlinePolicy, Job, JobMode, JobSituation
from lambdas.core.deadline.record import GRANTED_SECONDS, LONGEST_LOSS
from lambdas.core.deadline.safety import LOOK_SECONDS, Prudence, decide
from lambdas.core.model import Alarm, Instance

LOST: Final = "deadline-lost"
UNKNOWN: Final = "deadline-unknown"
ALARMS: Final = (LOST, UNKNOWN)
"""What people hear of a deadline: it cannot be met, or nobody can say because no progress is told."""

CHANGEOVER_SECONDS: Final = UNKNOWN_BOOT + 120.0
"""From an order to the first step, before any was seen: a boot, and what is left of a volume's move then
(docs/performance.md has 202 s for a whole one in the rehearsal, most of it a boot)."""
UNSAVED_SECONDS: Final = 600.0
"""So much work an interruption may cost before any was seen: ten minutes between two checkpoints."""
MEASURE_SECONDS: Final = 1800.0
"""A job that has worked so long and whose progress nobody knows counts as one without a second to spare."""
WATCH_SECONDS: Final = 1800.0
"""So long spot may stand by, paid, before its pool is old enough to move to."""
_LONGEST_WORK: Final = 1e9
_LEAST_PACE: Final = 0.01
"""Beyond these a measurement is nonsense: the deadline cannot be met in any case."""
_CALM_SECONDS: Final = 600.0
"""A job that works is looked at so often at least, whatever happens."""


@dataclass(frozen=True, slots=True)
class ByDeadline:
    """Meet a group's deadline at the least expected cost.

    Until its progress is measured the job takes spot where there is some and on-demand where there is none:
    both measure. One that works for ``MEASURE_SECONDS`` and tells nothing is taken to have no time to spare.
    A deadline that cannot be met is said at once, and the job goes on as fast as possible.
    """

    choice: DeadlinePolicy = field(default_factory=ExpectedJobCost)
    name: ClassVar[str] = "deadline"

    def plan(self, situation: Situation) -> Plan:
        """Return what to hold now."""
        deadline = situation.group.deadline
        if not situation.group.target or deadline is None:
            return Plan(0, "nothing to do", primary=0)
        if not situation.memory.job.is_measured:
            return self._unmeasured(situation, deadline - situation.now)
        prudence, state = _asked(situation, deadline)
        choice = decide(prudence, state, self.choice)
        on_demand, primary = self._held(situation, prudence, state, choice)
        return Plan(
            on_demand=on_demand,
            reason=f"{_told(situation, state)}: {choice.reason}",
            primary=primary,
            wake_at=_wake_at(situation, state, choice.hold),
            alarms=(Alarm(LOST, f"{_told(situation, state)}: it goes on as fast as it can"),)
            if choice.late
            else (),
        )

    def _held(
        self, situation: Situation, prudence: Prudence, state: JobSituation, choice: Choice
    ) -> tuple[int, int]:
        """Return the slots on-demand, and those that the primary group is to have."""
        if choice.mode is JobMode.SPOT:
            return 0, 1
        dear = state.price >= 1
        if choice.mode is JobMode.IDLE:
            if dear:
                return 0, 0
            fresh = replace(state, up=True, age=0.0)
            if decide(prudence, fresh, self.choice).mode is not JobMode.ON_DEMAND:
                return 0, 1
            # Spot that comes now would be too late: to wait for it gains nothing.
        if dear:
            return 1, 0
        there = any(situation.is_up(i) for i in situation.fallback)
        if choice.late and not there:
            return 1, 1  # whichever is first
        beside = replace(
            state,
            mode=JobMode.ON_DEMAND,
            boot_left=state.boot_left if state.mode is JobMode.ON_DEMAND else prudence.reckoning.changeover,
            up=True,
            age=max(state.age if state.up else 0.0, WATCH_SECONDS),
        )
        asked_at = situation.memory.job.asked_at
        refused = asked_at is not None and situation.now - asked_at > GRANTED_SECONDS
        wants = refused or decide(prudence, beside, self.choice).mode is JobMode.SPOT
        return 1, int(wants)

    def _unmeasured(self, situation: Situation, remaining: float) -> Plan:
        now, history = situation.now, situation.memory.history
        worker = max((i.ready_since or 0.0 for i in situation.fallback + situation.primary), default=0.0)
        was_silent = UNKNOWN in situation.memory.alarmed  # who tells nothing tells nothing elsewhere
        silent = was_silent or (worker > 0 and now - worker >= MEASURE_SECONDS)
        late = remaining <= 0
        reason = "progress is not measured yet"
        alarms: list[Alarm] = []
        if silent:
            reason = 'no progress is told ({"step": n, "steps": N} in $GPU_SPOT_TELL): no time to spare'
            alarms.append(Alarm(UNKNOWN, reason))
        if late:
            alarms.append(Alarm(LOST, f"the deadline passed {-remaining / 60:.0f} minutes ago"))
        staying = [i for i in situation.primary if not situation.is_doomed(i)]
        dear = situation.spot_price >= 1
        needed = silent or dear or situation.committed_fallback > 0 or history.refused
        on_demand = int(needed and (silent or not staying))
        there = any(situation.is_up(i) for i in situation.fallback)
        return Plan(
            on_demand=on_demand,
            reason=reason,
            primary=int(not (on_demand and (there or dear))),
            wake_at=_grid(now, LOOK_SECONDS),
            alarms=tuple(alarms),
        )


def _asked(situation: Situation, deadline: float) -> tuple[Prudence, JobSituation]:
    """Return the job and its situation as the deadline policy knows them."""
    now, record = situation.now, situation.memory.job
    left, remaining = min(max(1.0, record.left), _LONGEST_WORK), deadline - now
    unsaved = min(LONGEST_LOSS, max(UNSAVED_SECONDS, record.lost))
    price = situation.spot_price
    told = Job(
        compute=left,
        deadline=max(remaining, left + CHANGEOVER_SECONDS),
        changeover=CHANGEOVER_SECONDS,
        spot_price=price,
        tick=LOOK_SECONDS,
        checkpoint=unsaved,
    )
    known = record.experience().reckoning(told, record.best / record.rate)
    prudence = Prudence(told, replace(known, pace=max(known.pace, _LEAST_PACE)))
    spot = [i for i in situation.primary if not situation.is_doomed(i) and not i.given_up]
    mode, worker = _mode(situation, spot)
    boot_left = 0.0
    if worker is not None and worker.ready_since is None:
        boot_left = max(LOOK_SECONDS, prudence.reckoning.changeover - (now - worker.launched_at))
    up = bool(spot) and price < 1
    return prudence, JobSituation(
        left=left,
        remaining=remaining,
        mode=mode,
        boot_left=boot_left,
        up=up or mode is JobMode.SPOT,
        age=_age(situation, spot),
        price=price,
    )


def _mode(situation: Situation, spot: list[Instance]) -> tuple[JobMode, Instance | None]:
    """Return what the job holds, and on which instance: who works, else who boots, on-demand first."""
    fallback = [i for i in situation.fallback if not situation.is_doomed(i)]
    held = [(JobMode.ON_DEMAND, i) for i in fallback] + [(JobMode.SPOT, i) for i in spot]
    working = [one for one in held if one[1].ready_since is not None]
    if working:
        return max(working, key=lambda one: (one[1].ready_since or 0.0, one[1].id))
    return held[0] if held else (JobMode.IDLE, None)


def _age(situation: Situation, spot: list[Instance]) -> float:
    """Return for how many seconds the pool of what is held has given spot, or for how long none has."""
    now, history = situation.now, situation.memory.history
    if spot:
        oldest = min(spot, key=lambda i: (i.launched_at, i.id))
        since = history.record(history.living.get(oldest.id, oldest.pool)).since
        return max(0.0, now - min(oldest.launched_at, oldest.launched_at if since is None else since))
    return 0.0 if history.waiting_since is None else max(0.0, now - history.waiting_since)


def _told(situation: Situation, state: JobSituation) -> str:
    record = situation.memory.job
    return (
        f"step {record.step} of {record.steps}, {state.left / 3600:.1f} h of work and "
        f"{state.remaining / 3600:.1f} h of time are left"
    )


def _wake_at(situation: Situation, state: JobSituation, hold: float) -> float:
    """Return when to look again: the job's progress alone changes what is wanted."""
    calm = state.mode is not JobMode.IDLE and state.boot_left == 0 and not situation.memory.doomed
    every = _CALM_SECONDS if calm else LOOK_SECONDS
    return min(_grid(situation.now, every), situation.now + max(LOOK_SECONDS, hold))


def _grid(now: float, every: float) -> float:
    """Return the next whole multiple: looks in between ask for no other wake-up."""
    return math.floor(now / every) * every + every
