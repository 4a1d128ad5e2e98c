"""What a group has learned about its spot pools: how long they have lived, how often they are lost.

The controller cannot see a pool's capacity, only its own instances: a pool is *up* from the first launch that
succeeds until its instances are taken. If the launch before was refused, the pool has only just come back;
otherwise its age is unknown, and a typical one is assumed.

A history changes only when something happens, so an unchanged group needs no write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeAlias

from contracts.stored import RaisedTo, stored
from lambdas.core.model import Market, Observation, RefusalKind, Side, slots

SCALE: Final = 0.85
"""Losses of a pool come at rate ``SCALE / (OFFSET + age)``; fitted by ``bench/fit/hazard.py`` to the 0/1
traces of the public skypilot-org/spot-traces. Each pool's own factor is learned on top of it."""
OFFSET: Final = 1200.0
UNKNOWN_AGE: Final = 6000.0
"""The age in seconds at which that rate equals one over the mean up-run: a run met at a random moment."""
PRIOR_LOSSES: Final = 4.0
"""How many losses the prior is worth against what was learned."""
UNANNOUNCED: Final = 0.1
PRIOR_NOTICES: Final = 20.0
PATIENCE: Final = 120.0
"""After so many seconds without a launch, a group below its desired capacity counts as refused: a Spot Fleet
says nothing when spot is short, and both kinds launch within seconds when it is not."""
STORM_SECONDS: Final = 300.0
"""For so long after a loss the rest of a pool is in danger, and what goes then belongs to the same drop."""
STORM_PRIOR: Final = 600.0
"""The prior: in such a time an instance is lost once in so many seconds. In the public traces that tell the
sizes of pools 0.2–0.6 of the drops that leave some are followed by another within five minutes."""
_KEPT: Final = 0.95
"""What a loss leaves of the weight of those before: about the newest twenty count."""
_MOST_POOLS: Final = 64

_Weight: TypeAlias = Annotated[float, RaisedTo(0.0)]
"""A clock that was set back may have left one below 0."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class PoolRecord:
    """What is known of one pool.

    ``since`` (epoch seconds) is when its run was first seen, ``None`` while nothing of ours lives there, and
    ``start_age`` how many seconds old it was then; ``losses`` of runs stand against the losses ``expected``
    over them, both fading. ``lost_at`` is when it last lost instances of ours, ``None`` before it ever did.
    """

    since: float | None = None
    start_age: _Weight = 0.0
    losses: _Weight = 0.0
    expected: _Weight = 0.0
    lost_at: float | None = None

    def is_failing(self, now: float) -> bool:
        """Say whether it has lost instances so lately that what is left may follow."""
        return self.lost_at is not None and now - self.lost_at < STORM_SECONDS

    def age(self, now: float) -> float:
        """Return the age of the current run in seconds, 0 if there is none."""
        return 0.0 if self.since is None else self.start_age + max(0.0, now - self.since)


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of all pools of a group.

    ``living`` is the pool of each spot instance of the primary group seen last; ``refused`` whether spot was
    short then; ``waiting_since`` (epoch seconds) is when the group last launched, or began to lack instances,
    ``None`` where it lacks none; ``losses`` and ``unannounced`` count pool losses, fading. ``storm_losses``
    are the instances lost within ``STORM_SECONDS`` of their pool's last loss, ``storm_seconds`` the seconds
    that instances lived there then, both fading.
    """

    pools: Mapping[str, PoolRecord] = field(default_factory=dict)
    living: Mapping[str, str] = field(default_factory=dict)
    refused: bool = False
    waiting_since: float | None = None
    losses: _Weight = 0.0
    unannounced: _Weight = 0.0
    storm_losses: _Weight = 0.0
    storm_seconds: _Weight = 0.0

    @property
    def storm_rate(self) -> float:
        """How many times a second an instance is lost whose pool has just lost others."""
        return (self.storm_losses + 1.0) / (self.storm_seconds + STORM_PRIOR)

    def record(self, pool: object) -> PoolRecord:
        """Return what is known of a pool."""
        return self.pools.get(str(pool), PoolRecord())

    def factor(self) -> float:
        """Return how much more often than a typical one a pool of the group is lost, none in particular."""
        losses = PRIOR_LOSSES + sum(record.losses for record in self.pools.values())
        return losses / (PRIOR_LOSSES + sum(record.expected for record in self.pools.values()))

    def factor_of(self, pool: object, group: float) -> float:
        """Return the same of one pool, where ``group`` is ``factor()``."""
        own = self.record(pool)
        return (own.losses + PRIOR_LOSSES * group) / (own.expected + PRIOR_LOSSES)

    @property
    def refused_at(self) -> float | None:
        """When a group that waits for instances counts as refused, ``None`` while it lacks none."""
        return None if self.waiting_since is None else self.waiting_since + PATIENCE

    @property
    def unannounced_share(self) -> float:
        """The share of losses that come without a notice."""
        return (self.unannounced + UNANNOUNCED * PRIOR_NOTICES) / (self.losses + PRIOR_NOTICES)


def follow(
    history: History,
    observation: Observation,
    doomed: Mapping[str, float],
    released: Mapping[str, float],
    now: float,
) -> History:
    """Return the history after one look; ``doomed`` and ``released`` as remembered before and in it."""
    known, primary, spot = history.living, Side.PRIMARY, Market.SPOT
    living = {
        i.id: known.get(i.id) or str(i.pool)
        for i in observation.instances
        if i.side is primary and i.market is spot
    }
    for instance in [i for i in observation.instances if not i.described]:
        # It is what it was, and what is new is learned once it is described.
        living.pop(instance.id, None)
        if instance.id in history.living:
            living[instance.id] = history.living[instance.id]
    waiting_since = _waiting_since(history, observation, living, now)
    refused = _refused(history, observation, waiting_since, now)
    if (living, refused, waiting_since) == (history.living, history.refused, history.waiting_since):
        return history
    pools = dict(history.pools)
    losses, unannounced = history.losses, history.unannounced
    storm_losses, storm_seconds = history.storm_losses, history.storm_seconds
    gone = {i: pool for i, pool in history.living.items() if i not in living}
    for pool in sorted(set(gone.values())):
        taken = [i for i, at in gone.items() if at == pool and i not in released]
        survivors = pool in living.values()
        before = pools.get(pool, PoolRecord())
        if taken:
            losses = losses * _KEPT + 1
            unannounced = unannounced * _KEPT + all(i not in doomed for i in taken)
            if before.lost_at is not None and before.lost_at == before.since:  # some were left then
                exposed = sum(at == pool for at in history.living.values())
                storm_losses = storm_losses * _KEPT + len(taken) * before.is_failing(now)
                storm_seconds = storm_seconds * _KEPT + exposed * min(STORM_SECONDS, now - before.lost_at)
        if taken or not survivors:
            pools[pool] = _ended(before, now, lost=bool(taken), survivors=survivors)
    for instance in observation.instances:
        pool = living.get(instance.id, "")
        if pool and pools.get(pool, PoolRecord()).since is None:
            start_age = 0.0 if history.refused else UNKNOWN_AGE
            pools[pool] = replace(
                pools.get(pool, PoolRecord()), since=min(now, instance.launched_at), start_age=start_age
            )
    return History(
        _bounded(pools), living, refused, waiting_since, losses, unannounced, storm_losses, storm_seconds
    )


def _waiting_since(
    history: History, observation: Observation, living: Mapping[str, str], now: float
) -> float | None:
    if slots(observation.staying(Side.PRIMARY)) >= observation.primary_desired:
        return None
    launched = not living.keys() <= history.living.keys()
    return now if launched or history.waiting_since is None else history.waiting_since


def _refused(history: History, observation: Observation, waiting_since: float | None, now: float) -> bool:
    if Side.PRIMARY in observation.unread and history.refused and waiting_since is not None:
        return True
    refusal = observation.refusal(Side.PRIMARY)
    if refusal is not None:
        return refusal.kind is RefusalKind.CAPACITY
    return waiting_since is not None and now >= waiting_since + PATIENCE


def expected_losses(start: float, end: float) -> float:
    """Return how many losses a typical pool sees between two ages in seconds."""
    return SCALE * math.log((OFFSET + end) / (OFFSET + start))


def _ended(record: PoolRecord, now: float, *, lost: bool, survivors: bool) -> PoolRecord:
    expected = 0.0
    if record.since is not None:
        expected = expected_losses(record.start_age, record.age(now))
    drops = lost and not record.is_failing(now)  # one drop is one loss, however many looks it takes
    kept = _KEPT if drops else 1.0
    return PoolRecord(
        since=now if survivors else None,
        start_age=record.age(now) if survivors else 0.0,
        losses=record.losses * kept + drops,
        expected=record.expected * kept + expected,
        lost_at=now if lost else record.lost_at,
    )


def _bounded(pools: Mapping[str, PoolRecord]) -> dict[str, PoolRecord]:
    """Keep the pools that live and, of the others, those with most history."""
    order = sorted(pools, key=lambda p: (pools[p].since is None, -pools[p].expected, p))
    return {pool: pools[pool] for pool in sorted(order[:_MOST_POOLS])}
