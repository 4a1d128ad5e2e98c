"""Statistics of a group's Spot pools: the age of their current run, and how often they are lost.

The controller cannot observe the capacity of a pool, only its own instances: a *run* of a pool lasts from the
first successful launch until its instances are interrupted. After a launch failure for missing capacity, a
run starts at age 0; otherwise its age is unknown and a typical one is assumed.

A history changes only on events, so an unchanged group needs no write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeAlias

from contracts.stored import RaisedTo, stored
from lambdas.core.launch_failures import LAUNCH_FAILURE_SECONDS
from lambdas.core.model import GroupRole, Observation, PurchaseOption, slots

HAZARD_SCALE: Final = 0.85
"""A pool of age ``a`` seconds is lost at rate ``HAZARD_SCALE / (HAZARD_OFFSET_SECONDS + a)`` per second,
times a factor learned for each pool.

Source: fitted by ``research/fit/hazard.py`` to the 0/1 traces of the public skypilot-org/spot-traces.
"""
HAZARD_OFFSET_SECONDS: Final = 1200.0
DEFAULT_AGE_SECONDS: Final = 6000.0
"""Assumed age of a run of unknown age: at this age the rate is one per mean run length."""
PRIOR_LOSSES: Final = 4.0
"""Weight of the prior of a pool's factor, in losses."""
UNANNOUNCED_PRIOR: Final = 0.1
"""Prior share of losses without a notice."""
PRIOR_NOTICES: Final = 20.0
"""Weight of that prior, in losses."""
LAUNCH_TIMEOUT_SECONDS: Final = 120.0
"""A group that stays below its desired capacity for so long without a launch has no capacity available: a
Spot Fleet reports no failure, and both kinds of group launch within seconds if there is capacity."""
CORRELATION_SECONDS: Final = 300.0
"""Time after a loss in which further losses of the pool are correlated, part of the same drop in capacity."""
CORRELATED_LOSS_PRIOR_SECONDS: Final = 600.0
"""Prior mean time to the loss of an instance within ``CORRELATION_SECONDS`` after a loss in its pool. In
public traces with pool sizes, 0.2–0.6 of the partial drops are followed by another within five minutes."""
_DECAY: Final = 0.95
"""Weight of older losses after each new one: about the newest twenty count."""
_MAX_POOLS: Final = 64

_Weight: TypeAlias = Annotated[float, RaisedTo(0.0)]
"""A clock that was set back may have stored a negative value."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class PoolRecord:
    """Statistics of one pool.

    Attributes:
        since: Start of the current run as observed (epoch seconds); ``None`` without instances in the pool.
        start_age: Assumed age of the run at ``since``, in seconds.
        losses: Number of losses, with decay.
        expected: Losses expected by the hazard rate over the same time, with decay.
        lost_at: Time of the last loss; ``None`` before any.
    """

    since: float | None = None
    start_age: _Weight = 0.0
    losses: _Weight = 0.0
    expected: _Weight = 0.0
    lost_at: float | None = None

    def is_failing(self, now: float) -> bool:
        """Return whether the last loss is so recent that the remaining instances may be lost, too."""
        return self.lost_at is not None and now - self.lost_at < CORRELATION_SECONDS

    def age(self, now: float) -> float:
        """Return the age of the current run in seconds, 0 if there is none."""
        return 0.0 if self.since is None else self.start_age + max(0.0, now - self.since)


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class History:
    """Statistics of all pools of a group; counts have decay.

    Attributes:
        pool_by_instance: Pool of each Spot Instance of the primary group at the last observation.
        capacity_unavailable: Whether Spot capacity was unavailable at the last observation.
        waiting_since: Time at which the group last launched an instance, or fell below its desired capacity
            (epoch seconds); ``None`` at its desired capacity.
        losses: Losses of pools.
        unannounced: Losses of pools without a notice.
        correlated_losses: Instances lost within ``CORRELATION_SECONDS`` after a loss in their pool.
        correlated_seconds: Instance-seconds in these times.
    """

    pools: Mapping[str, PoolRecord] = field(default_factory=dict)
    pool_by_instance: Mapping[str, str] = field(default_factory=dict)
    capacity_unavailable: bool = False
    waiting_since: float | None = None
    losses: _Weight = 0.0
    unannounced: _Weight = 0.0
    correlated_losses: _Weight = 0.0
    correlated_seconds: _Weight = 0.0

    @property
    def correlated_loss_rate(self) -> float:
        """Losses per instance and second in a pool that has just lost instances."""
        return (self.correlated_losses + 1.0) / (self.correlated_seconds + CORRELATED_LOSS_PRIOR_SECONDS)

    def record(self, pool: object) -> PoolRecord:
        """Return the statistics of a pool."""
        return self.pools.get(str(pool), PoolRecord())

    def hazard_factor(self) -> float:
        """Return the factor of the group's pools on the hazard rate of a typical pool."""
        losses = PRIOR_LOSSES + sum(record.losses for record in self.pools.values())
        return losses / (PRIOR_LOSSES + sum(record.expected for record in self.pools.values()))

    def pool_hazard_factor(self, pool: object, group_factor: float) -> float:
        """Return the factor of one pool; ``group_factor`` is ``hazard_factor()``."""
        record = self.record(pool)
        return (record.losses + PRIOR_LOSSES * group_factor) / (record.expected + PRIOR_LOSSES)

    @property
    def unavailable_at(self) -> float | None:
        """When the group's launches time out; ``None`` at its desired capacity."""
        return None if self.waiting_since is None else self.waiting_since + LAUNCH_TIMEOUT_SECONDS

    @property
    def unannounced_share(self) -> float:
        """Share of losses without a notice."""
        return (self.unannounced + UNANNOUNCED_PRIOR * PRIOR_NOTICES) / (self.losses + PRIOR_NOTICES)


def update_history(
    history: History,
    observation: Observation,
    termination_deadlines: Mapping[str, float],
    expected_ends: Mapping[str, float],
    now: float,
) -> History:
    """Return the history after an observation.

    ``termination_deadlines`` are those known before: a loss without one is unannounced. ``expected_ends`` are
    instances that end by request or by schedule, which says nothing about capacity.
    """
    living = {
        i.id: history.pool_by_instance.get(i.id) or str(i.pool)
        for i in observation.instances
        if i.group_role is GroupRole.PRIMARY and i.purchase_option is PurchaseOption.SPOT
    }
    for instance in [i for i in observation.instances if not i.is_described]:
        # Its pool is a guess: keep the recorded one, and learn of a new instance once it is described.
        living.pop(instance.id, None)
        if instance.id in history.pool_by_instance:
            living[instance.id] = history.pool_by_instance[instance.id]
    waiting_since = _waiting_since(history, observation, living, now)
    is_unavailable = _is_capacity_unavailable(history, observation, waiting_since, now)
    unchanged = (history.pool_by_instance, history.capacity_unavailable, history.waiting_since)
    pools = {pool: _past(record, now) for pool, record in history.pools.items()}
    if (living, is_unavailable, waiting_since) == unchanged and pools == history.pools:
        return history
    losses, unannounced = history.losses, history.unannounced
    correlated_losses, correlated_seconds = history.correlated_losses, history.correlated_seconds
    ended = {i: pool for i, pool in history.pool_by_instance.items() if i not in living}
    for pool in sorted(set(ended.values())):
        lost = [i for i, instance_pool in ended.items() if instance_pool == pool and i not in expected_ends]
        has_survivors = pool in living.values()
        record = pools.get(pool, PoolRecord())
        if lost:
            losses = losses * _DECAY + 1
            unannounced = unannounced * _DECAY + all(i not in termination_deadlines for i in lost)
            if record.lost_at is not None and record.lost_at == record.since:  # the last loss left survivors
                exposed = sum(instance_pool == pool for instance_pool in history.pool_by_instance.values())
                seconds = min(CORRELATION_SECONDS, now - record.lost_at)
                correlated_losses = correlated_losses * _DECAY + len(lost) * record.is_failing(now)
                correlated_seconds = correlated_seconds * _DECAY + exposed * seconds
        if lost or not has_survivors:
            pools[pool] = _end_run(record, now, is_lost=bool(lost), has_survivors=has_survivors)
    for instance in observation.instances:
        pool = living.get(instance.id, "")
        if pool and pools.get(pool, PoolRecord()).since is None:
            start_age = 0.0 if history.capacity_unavailable else DEFAULT_AGE_SECONDS
            pools[pool] = replace(
                pools.get(pool, PoolRecord()), since=min(now, instance.launched_at), start_age=start_age
            )
    return History(
        pools=_bounded(pools),
        pool_by_instance=living,
        capacity_unavailable=is_unavailable,
        waiting_since=waiting_since,
        losses=losses,
        unannounced=unannounced,
        correlated_losses=correlated_losses,
        correlated_seconds=correlated_seconds,
    )


def _waiting_since(
    history: History, observation: Observation, living: Mapping[str, str], now: float
) -> float | None:
    if slots(observation.active_instances(GroupRole.PRIMARY)) >= observation.primary_desired:
        return None
    has_launched = not living.keys() <= history.pool_by_instance.keys()
    return now if has_launched or history.waiting_since is None else min(history.waiting_since, now)


def _is_capacity_unavailable(
    history: History, observation: Observation, waiting_since: float | None, now: float
) -> bool:
    is_unknown = GroupRole.PRIMARY in observation.activities_unknown
    if is_unknown and history.capacity_unavailable and waiting_since is not None:
        return True
    if GroupRole.PRIMARY in observation.missing:
        return True
    failures = [
        failure
        for failure in observation.launch_failures_of(GroupRole.PRIMARY)
        if failure.failed_at > now - LAUNCH_FAILURE_SECONDS
    ]
    if failures:
        return any(not failure.kind.withholds_on_demand for failure in failures)
    return waiting_since is not None and now >= waiting_since + LAUNCH_TIMEOUT_SECONDS


def expected_losses(start: float, end: float) -> float:
    """Return the expected losses of a typical pool between two ages in seconds."""
    return HAZARD_SCALE * math.log((HAZARD_OFFSET_SECONDS + end) / (HAZARD_OFFSET_SECONDS + start))


def _past(record: PoolRecord, now: float) -> PoolRecord:
    """Return the record with times in the future read as now: such a run would never age."""
    if max(record.since or 0.0, record.lost_at or 0.0) <= now:
        return record
    since, lost_at = (None if time is None else min(time, now) for time in (record.since, record.lost_at))
    return replace(record, since=since, lost_at=lost_at)


def _end_run(record: PoolRecord, now: float, *, is_lost: bool, has_survivors: bool) -> PoolRecord:
    expected = 0.0
    if record.since is not None:
        expected = expected_losses(record.start_age, record.age(now))
    # A drop in capacity counts as one loss, even if several observations show its parts.
    is_new_drop = is_lost and not record.is_failing(now)
    weight = _DECAY if is_new_drop else 1.0
    return PoolRecord(
        since=now if has_survivors else None,
        start_age=record.age(now) if has_survivors else 0.0,
        losses=record.losses * weight + is_new_drop,
        expected=record.expected * weight + expected,
        lost_at=now if is_lost else record.lost_at,
    )


def _bounded(pools: Mapping[str, PoolRecord]) -> dict[str, PoolRecord]:
    """Keep the pools in use and, of the others, those with the longest history."""
    order = sorted(pools, key=lambda p: (pools[p].since is None, -pools[p].expected, p))
    return {pool: pools[pool] for pool in sorted(order[:_MAX_POOLS])}
