"""The fleet of a service whose real workers run and report readiness themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.fleet import Orders
from market.rules import NOTICE_SECONDS, TICK_SECONDS, Rules
from pulumi_on_moto.running.functions import Invocation
from rehearsal.fleets import CloudFleet
from rehearsal.results.serving import OFFICE, ON_DEMAND, SPOT
from rehearsal.services.hosts import RealService
from rehearsal.services.world import office_is_open

_ORIGINS: Final = {PurchaseOption.SPOT: SPOT, PurchaseOption.ON_DEMAND: ON_DEMAND}


@dataclass(slots=True)
class ServedFleet(CloudFleet):
    """See ``CloudFleet``.

    An agent starts workers ``boots`` seconds after a launch, ``warm_boots`` after the start of a warm
    instance. ``has_office``: a machine outside AWS with one worker reads the same queue while it is switched
    on. ``fleets`` are those of all services of the stack, itself included: a function that one of them runs
    decides for all.
    """

    # `dataclass(slots=True)` creates a new class, so a plain `super()` would refer to the old one.

    service: RealService = field(kw_only=True)
    boots: float = field(kw_only=True)
    warm_boots: float = field(kw_only=True)
    start: float = field(kw_only=True)
    target: int = field(kw_only=True)
    office_host: str = field(kw_only=True)
    fleets: list[ServedFleet] = field(kw_only=True, default_factory=list)

    @classmethod
    def of(
        cls,
        fleet: CloudFleet,
        service: RealService,
        rules: Rules,
        start: float,
        target: int,
        *,
        office_host: str,
    ) -> Self:
        """Return the fleet of the same group, with real workers, from ``start`` (simulated epoch seconds)."""
        return cls(
            fleet.cloud,
            fleet.group,
            fleet.store,
            service=service,
            boots=rules.spot_cold_start,
            warm_boots=rules.on_demand_cold_start,
            start=start,
            target=target,
            office_host=office_host,
        )

    def tick(self, now: float) -> None:
        """See ``Fleet``."""
        self._switch_office(now)
        self.service.advance(now)
        CloudFleet.tick(self, now)

    def report(self, now: float) -> None:
        """Write the heartbeats of all ready workers, before a function of any group runs."""
        self.tick(now)
        self.working()
        self.cloud.heartbeat(self._working)
        if self.office_host in self.service.working():
            self.cloud.heartbeat_on_premises(self.group, [self.office_host])

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``."""
        instance_id = CloudFleet.launched(self, pool, market, side, warm=warm)
        slots = self.cloud.group(self.group).slots.get(pool.instance_type, 1)
        at = self._now + (self.warm_boots if warm else self.boots)
        self.service.launch(instance_id, slots, at, _ORIGINS[market])
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
        """See ``Fleet``; every tick is simulated, since real workers can become ready at any time.

        The target is what is left for AWS beside the office.
        """
        orders = CloudFleet.reconcile(self)
        offset = self.store.load(self.group).memory.on_premises_offset.slots
        return replace(orders, wake_at=self._now + TICK_SECONDS, target=self.target - offset)

    def died(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        ended = list(instance_ids)
        for instance_id in ended:
            self.service.end(instance_id)
        CloudFleet.died(self, ended)

    def _record(self, invocation: Invocation) -> None:
        """See ``CloudFleet``: for every group that the function decided about."""
        for fleet in self.fleets:
            CloudFleet._record(fleet, invocation)

    def _switch_office(self, now: float) -> None:
        if not self.office_host:
            return
        is_open = office_is_open(round((now - self.start) / TICK_SECONDS))
        if is_open and not self.service.has(self.office_host):
            self.service.launch(self.office_host, 1, now, OFFICE)
        elif not is_open and self.service.has(self.office_host):
            self.service.end(self.office_host)

    def _forget(self, instance_ids: Iterable[str]) -> None:
        ended = list(instance_ids)
        CloudFleet._forget(self, ended)
        for instance_id in ended:
            self.service.release(instance_id, NOTICE_SECONDS)
