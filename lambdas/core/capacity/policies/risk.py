"""Risk of a group: how many serving slots may be missing at once until their successors are ready."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from contracts.limits import NOTICE_SECONDS
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.history import (
    CORRELATION_SECONDS,
    DEFAULT_AGE_SECONDS,
    HAZARD_OFFSET_SECONDS,
    HAZARD_SCALE,
)
from lambdas.core.model import PurchaseOption


@dataclass(frozen=True, slots=True)
class PoolRisk:
    """Risk of one pool: its serving slots, its age in seconds, and its factor on the typical hazard rate."""

    slots: int
    age: float
    factor: float

    @property
    def hazard(self) -> float:
        """Losses of the whole pool per second."""
        return HAZARD_SCALE * self.factor / (HAZARD_OFFSET_SECONDS + self.age)


@dataclass(frozen=True, slots=True)
class Risk:
    """Risk to the uninterrupted Spot Instances of a primary group.

    Attributes:
        outage_seconds: Mean time for which a lost slot is missing: an On-Demand boot after a loss without a
            notice, the part of it that exceeds the notice otherwise.
        default_factor: Hazard factor of a pool without history.
        pools: Pools in use.
        correlated_missing_slots: Mean number of missing slots because pools that have just lost instances
            lose the others one by one.
        correlation_ends_at: Time at which the first of these pools is no longer failing (epoch seconds).
    """

    outage_seconds: float
    default_factor: float
    pools: tuple[PoolRisk, ...]
    correlated_missing_slots: float
    correlation_ends_at: float

    @classmethod
    def from_state(cls, state: GroupState) -> Risk:
        """Return the current risk of a group."""
        now, memory, history = state.now, state.memory, state.memory.history
        boot = memory.boot_seconds(PurchaseOption.ON_DEMAND)
        with_notice = max(0.0, boot + state.group.config.drain_seconds - NOTICE_SECONDS)
        outage = history.unannounced_share * boot + (1 - history.unannounced_share) * with_notice
        serving: Counter[str] = Counter()
        failing: set[str] = set()
        for instance in state.primary:
            pool = history.pool_by_instance.get(instance.id)
            if instance.id not in memory.termination_deadlines:
                if pool is not None:
                    serving[pool] += instance.slots if state.is_up(instance) else 0
            elif instance.id not in memory.retiring:
                # A scheduled retirement says nothing about the pool's capacity.
                failing.add(str(instance.pool))
        default_factor, pools, missing, ends_at = history.hazard_factor(), [], 0.0, math.inf
        for pool, slots in serving.items():
            record = history.record(pool)
            factor = history.pool_hazard_factor(pool, default_factor)
            pools.append(PoolRisk(slots, record.age(now), factor))
            if record.lost_at is not None and record.is_failing(now):
                failing.add(pool)
                ends_at = min(ends_at, record.lost_at + CORRELATION_SECONDS)
            if pool in failing:
                missing += slots * history.correlated_loss_rate * outage
        return cls(outage, default_factor, tuple(pools), missing, ends_at)

    def missing_share(self, slots: int) -> float:
        """Return the share of time in which at least ``slots`` slots are missing without spare capacity.

        A pool is lost as a whole or, while it is failing, one instance at a time as a Poisson process.
        """
        whole = sum(pool.hazard for pool in self.pools if pool.slots >= slots)
        return self.outage_seconds * whole + _poisson_tail(self.correlated_missing_slots, slots)

    def missing_share_with_spare(self, slots: int) -> float:
        """Return the long-term share if a Spot spare runs in one of the pools, which may itself be lost."""
        pools = sum(pool.slots >= slots for pool in self.pools)
        hazard = HAZARD_SCALE * self.default_factor / (HAZARD_OFFSET_SECONDS + DEFAULT_AGE_SECONDS)
        return max(0, pools - 1) * self.outage_seconds * hazard

    def unchanged_until(self, ratio: float, now: float) -> float:
        """Return a time before which no hazard falls to ``1 / ratio`` of its current value."""
        youngest = min((pool.age for pool in self.pools), default=math.inf)
        return min(self.correlation_ends_at, now + (HAZARD_OFFSET_SECONDS + youngest) * (ratio - 1.0))


def _poisson_tail(mean: float, count: int) -> float:
    """Return the probability of at least ``count`` events of a Poisson distribution."""
    if mean == 0:
        return 0.0
    if mean > 2 * count + 100:
        return 1.0  # to within 1e-8; the sum below takes as many steps as the mean
    total, term = 0.0, math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    while count < mean or term > 1e-9:
        total += term
        count += 1
        term *= mean / count
    return min(1.0, total)
