"""How much of what serves may be missing at once before its successors are ready."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.history import OFFSET, SCALE, STORM_SECONDS, UNKNOWN_AGE
from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.model import Market


@dataclass(frozen=True, slots=True)
class PoolRisk:
    """One pool: its slots that serve, its age in seconds, and how often it is lost beside a typical one."""

    slots: int
    age: float
    factor: float

    @property
    def hazard(self) -> float:
        """How many times a second it is lost whole."""
        return SCALE * self.factor / (OFFSET + self.age)


@dataclass(frozen=True, slots=True)
class Risk:
    """What threatens the spot instances of a primary group that have no notice.

    ``outage`` is for how many seconds a lost slot is missing, in the mean: a boot of on-demand where no
    notice came, else what its two minutes leave of it. ``factor`` is that of a pool not yet seen, ``pools``
    are those in use. ``storm`` is how many slots are missing in the mean because pools that have just lost
    some lose the rest one by one; the first of these counts as calm again at ``storm_ends`` (epoch seconds).
    """

    outage: float
    factor: float
    pools: tuple[PoolRisk, ...]
    storm: float
    storm_ends: float

    @classmethod
    def of(cls, situation: Situation) -> Risk:
        """Return what threatens the group now."""
        now, memory, history = situation.now, situation.memory, situation.memory.history
        boot = memory.boot_seconds(Market.ON_DEMAND)
        late = max(0.0, boot + situation.group.drain_seconds - NOTICE_SECONDS)
        outage = history.unannounced_share * boot + (1 - history.unannounced_share) * late
        serving: Counter[str] = Counter()
        failing: set[str] = set()
        for instance in situation.primary:
            pool = history.living.get(instance.id)
            if instance.id not in memory.doomed:
                if pool is not None:
                    serving[pool] += instance.slots if situation.is_up(instance) else 0
            elif instance.id not in memory.retiring:
                # Who is retired by schedule says nothing of the pool's capacity.
                failing.add(str(instance.pool))
        factor, pools, storm, ends = history.factor(), [], 0.0, math.inf
        for pool, slots in serving.items():
            record = history.record(pool)
            pools.append(PoolRisk(slots, record.age(now), history.factor_of(pool, factor)))
            if record.lost_at is not None and record.is_failing(now):
                failing.add(pool)
                ends = min(ends, record.lost_at + STORM_SECONDS)
            if pool in failing:
                storm += slots * history.storm_rate * outage
        return cls(outage, factor, tuple(pools), storm, ends)

    def missing(self, slots: int) -> float:
        """Return the share of time in which so many or more slots are missing if nothing stands by.

        A pool is lost whole, or in a storm instance by instance, as by a Poisson process.
        """
        whole = sum(pool.hazard for pool in self.pools if pool.slots >= slots)
        return self.outage * whole + _poisson_tail(self.storm, slots)

    def missing_elsewhere(self, slots: int) -> float:
        """Return the same in the long run, where spot in one of the pools stands by: it may be that one."""
        pools = sum(pool.slots >= slots for pool in self.pools)
        return max(0, pools - 1) * self.outage * SCALE * self.factor / (OFFSET + UNKNOWN_AGE)

    def calm_at(self, ratio: float, now: float) -> float:
        """Return a moment until which nothing gets ``ratio`` times as rare as it is now."""
        youngest = min((pool.age for pool in self.pools), default=math.inf)
        return min(self.storm_ends, now + (OFFSET + youngest) * (ratio - 1.0))


def _poisson_tail(mean: float, count: int) -> float:
    """Return the probability of ``count`` or more events where ``mean`` are expected."""
    if mean == 0:
        return 0.0
    total, term = 0.0, math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    while count < mean or term > 1e-9:
        total += term
        count += 1
        term *= mean / count
    return min(1.0, total)
