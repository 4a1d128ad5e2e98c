"""The fleet of a service whose real workers run and report readiness themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.fleet import Orders
from market.rules import NOTICE_SECONDS, TICK_SECONDS, Rules
from rehearsal.fleets import CloudFleet
from rehearsal.real_service import RealService


@dataclass(slots=True)
class ServedFleet(CloudFleet):
    """See ``CloudFleet``.

    An agent starts workers ``boots`` seconds after a launch, ``warm_boots`` after the start of a warm
    instance.
    """

    # `dataclass(slots=True)` creates a new class, so a plain `super()` would refer to the old one.

    service: RealService = field(kw_only=True)
    boots: float = field(kw_only=True)
    warm_boots: float = field(kw_only=True)

    @classmethod
    def of(cls, fleet: CloudFleet, service: RealService, rules: Rules) -> Self:
        """Return the fleet of the same group, with real workers."""
        return cls(
            fleet.cloud,
            fleet.group,
            fleet.store,
            service=service,
            boots=rules.spot_cold_start,
            warm_boots=rules.on_demand_cold_start,
        )

    def tick(self, now: float) -> None:
        """See ``Fleet``: first wait for real time to pass."""
        self.service.advance(now)
        CloudFleet.tick(self, now)

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``."""
        instance_id = CloudFleet.launched(self, pool, market, side, warm=warm)
        slots = self.cloud.group(self.group).slots.get(pool.instance_type, 1)
        self.service.launch(instance_id, slots, self._now + (self.warm_boots if warm else self.boots))
        return instance_id

    def working(self) -> set[str]:
        """See ``SelfReporting``."""
        instance_ids = self.service.working() & self._alive
        self._working = dict.fromkeys(sorted(instance_ids))
        return instance_ids

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        """See ``Fleet``."""
        interrupted = list(instance_ids)
        CloudFleet.noticed(self, interrupted, deadline)
        drain = self.cloud.group(self.group).drain_seconds
        for instance_id in interrupted:
            self.service.notice(instance_id, "spot", deadline - self._now, drain)

    def reconcile(self) -> Orders:
        """See ``Fleet``; every tick is simulated, since real workers can become ready at any time."""
        return replace(CloudFleet.reconcile(self), wake_at=self._now + TICK_SECONDS)

    def died(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        ended = list(instance_ids)
        for instance_id in ended:
            self.service.end(instance_id)
        CloudFleet.died(self, ended)

    def _forget(self, instance_ids: Iterable[str]) -> None:
        ended = list(instance_ids)
        CloudFleet._forget(self, ended)
        for instance_id in ended:
            self.service.release(instance_id, NOTICE_SECONDS)
