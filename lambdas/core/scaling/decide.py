"""From what is seen of a service to its target, in workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contracts.group.scaling_settings import Bounds
from contracts.registry.queue_state import Backlog
from lambdas.core.scaling.forecast import forecast
from lambdas.core.scaling.memory import COOLDOWN, RECENT, ScalingMemory
from lambdas.core.scaling.model import LOOK_SECONDS, LoadObservation, Reason
from lambdas.core.scaling.staffing import LATE_SHARE, SCARCE_LATE_SHARE, Demand, needed

STALE_THROUGHPUT: Final = 300.0
"""For so long requests may come and none end before nobody believes what workers were measured to do.

Well below the cooldown, so that nothing is let go in between.
"""
QUIET_SECONDS: Final = RECENT * LOOK_SECONDS - 120.0
"""For so long no worker may have said that one ended before a queue's silence is believed."""
_KNOWN: Final = 0.9 * COOLDOWN / LOOK_SECONDS
"""So many looks of a cooldown are needed to let go: a scaler that did not run knows nothing of it."""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """The group's ``target`` in workers, why, and what to remember; ``wanted`` is what the load alone asks.

    ``wanted`` is None where nobody knows. ``rate`` are the requests a second that are expected, ``each`` what
    a worker of the group ends of them.
    """

    target: int
    reasons: tuple[Reason, ...]
    memory: ScalingMemory
    wanted: int | None = None
    rate: float = 0.0
    each: float = 0.0

    @property
    def rings(self) -> bool:
        """Whether people must hear of it."""
        return any(reason.rings for reason in self.reasons)


def decide(observation: LoadObservation, bounds: Bounds, memory: ScalingMemory) -> ScalingDecision:
    """Return how many workers the group should have; the same again for the same minute.

    More come at once; fewer only when for ``COOLDOWN`` no more were wanted and all that is needed is known.
    Whatever is missing, the target is never lower for it.
    """
    now = observation.now
    queue = observation.queue if _is_fresh(observation) else None
    memory = memory.seen(observation, queue, bounds.wait_seconds)
    troubles = _troubles(observation, memory, queue)
    if queue is None:
        return _bounded(observation, bounds, memory, None, troubles)
    if _is_idle(memory, queue, now):
        return _bounded(observation, bounds, memory, 0, troubles)
    each = memory.throughput.each(observation.ready)
    if each is None:
        known = observation.target or 1  # somebody asks: one worker tells what workers do
        return _bounded(observation, bounds, memory, known, troubles)
    lead = observation.boot_seconds + LOOK_SECONDS
    expected = forecast(memory.arrivals, memory.profile, memory.dispersion, now, now + 2 * lead)
    wanted = _needed(observation, bounds, memory, queue.ready, each, expected)
    return _bounded(observation, bounds, memory, wanted, troubles, expected, each)


def _needed(
    observation: LoadObservation,
    bounds: Bounds,
    memory: ScalingMemory,
    waiting: int,
    each: float,
    expected: float,
) -> int:
    """Return the fewest workers of the group with which the wait is kept, those elsewhere at work first."""
    own = memory.throughput.each(observation.elsewhere) or each
    elsewhere = sum(observation.elsewhere.values()) * own
    lead = observation.boot_seconds + LOOK_SECONDS
    ready = sum(observation.ready.values()) * each + elsewhere
    # Who boots now has on average half of it behind; nobody serves that the target lets go.
    done = ready * lead + observation.booting * each * lead / 2
    demand = Demand(expected, max(0.0, waiting + expected * lead - done), lead, memory.dispersion)
    most = bounds.maximum + int(elsewhere / each) + 1
    share = SCARCE_LATE_SHARE if observation.scarce else LATE_SHARE
    total = needed(demand, each, bounds.wait_seconds * memory.staffed.factor, most, share)
    return max(1 if not observation.elsewhere else 0, total - int(elsewhere / each))


def _bounded(
    observation: LoadObservation,
    bounds: Bounds,
    memory: ScalingMemory,
    wanted: int | None,
    troubles: tuple[Reason, ...],
    rate: float = 0.0,
    each: float = 0.0,
) -> ScalingDecision:
    """Return the target within its bounds: up at once, down when that was so for the whole cooldown."""
    before, floor = observation.target, bounds.floor(observation.now)
    reasons = list(troubles)
    asked = before if wanted is None else wanted
    if troubles:
        asked = max(asked, before)
    if asked < floor:
        asked = floor
        reasons.append(Reason.FLOOR)
    memory = memory.ordered(observation.now, asked)
    target = asked
    if asked < before:
        target = min(before, memory.most_wanted()) if len(memory.wanted) >= _KNOWN else before
        if target == before:
            reasons.append(Reason.COOLDOWN)
    if target > bounds.maximum:
        target = bounds.maximum
        reasons.append(Reason.CEILING)
    if wanted == 0 and target == 0:
        reasons.append(Reason.IDLE)
    elif before == 0 and target > 0:
        reasons.append(Reason.WAKE)
    elif not reasons:
        reasons.append(Reason.SCARCE if observation.scarce and each else Reason.LOAD)
    return ScalingDecision(target, tuple(reasons), memory, wanted, rate, each)


def _is_fresh(observation: LoadObservation) -> bool:
    return observation.queue is not None and observation.queue.is_fresh(observation.now)


def _troubles(
    observation: LoadObservation, memory: ScalingMemory, queue: Backlog | None
) -> tuple[Reason, ...]:
    if queue is None:
        return (Reason.QUEUE_UNKNOWN,)
    working = sum(observation.ready.values()) + sum(observation.elsewhere.values())
    if queue.arriving and working and not memory.throughput.by_type:
        return (Reason.THROUGHPUT_UNKNOWN,)
    if queue.arriving and working and _is_stale(memory, observation.now):
        return (Reason.THROUGHPUT_STALE,)
    return ()


def _is_stale(memory: ScalingMemory, now: float) -> bool:
    """Say whether requests have come all the time since one was last seen to end, and that is long ago."""
    newest = [rate for at, rate in memory.arrivals if now - at < STALE_THROUGHPUT]
    return now - memory.throughput.at >= STALE_THROUGHPUT and all(rate > 0 for rate in newest)


def _is_idle(memory: ScalingMemory, queue: Backlog, now: float) -> bool:
    """Say whether for as long as arrivals are remembered none came, no worker ended one, and none is left."""
    quiet = all(rate == 0 for _, rate in memory.arrivals) and len(memory.arrivals) >= RECENT - 2
    return quiet and queue.ready + queue.taken == 0 and now - memory.throughput.at >= QUIET_SECONDS
