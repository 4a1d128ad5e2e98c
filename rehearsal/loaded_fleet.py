"""The fleet of a service under load: its queue is simulated and the deployed scaler sets the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from contracts import names
from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import ScalingSettings
from contracts.registry import queue_state as backlog
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from infra.catalogue import on_demand_prices
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.load import speeds
from market.load.account import LoadAccount, LoadedService
from market.load.shapes import DAY_WITH_A_BURST
from market.replay.fleet import Orders
from market.rules import TICK_SECONDS, Rules
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView, registry_reader
from rehearsal.fleets import CloudFleet

QUEUE_KIND: Final = "rabbitmq"
"""The queue kind that is simulated (``services[].queue.kind``)."""
_BUSY: Final = 0.55
"""Load of the busiest hour, as a share of the throughput of the group's maximum, without the burst."""


@dataclass(slots=True)
class LoadedFleet(CloudFleet):
    """See ``CloudFleet``; every tick is simulated, and reports the minute before it.

    The queue's registry item is that of the queue watcher, the worker reports are those of the workers.
    """

    # `dataclass(slots=True)` creates a new class, so a plain `super()` would refer to the old one.

    service: LoadedService = field(kw_only=True)
    scaling: ScalingSettings = field(kw_only=True)
    rules: Rules = field(kw_only=True)
    prices: Mapping[str, float] = field(kw_only=True)
    """On-Demand prices by type, in US dollars an hour."""
    _began: bool = False
    _target: int = 0
    _purchases: dict[str, tuple[Pool, PurchaseOption]] = field(default_factory=dict)
    _spot: dict[Pool, float] = field(default_factory=dict)
    _drains: dict[str, float] = field(default_factory=dict)
    _done: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, fleet: CloudFleet, rules: Rules, ticks: int) -> Self:
        """Return the fleet of the same group with a daily load for ``ticks`` minutes.

        Raises ``LocalCloudError`` for a group without scaling or with a type of unknown price.
        """
        cloud, view = fleet.cloud, fleet.cloud.group(fleet.group)
        scaling = _scaling(cloud, fleet.group)
        prices = _prices(view, cloud.clients.region)
        rates = speeds.assumed(view.instance_types)
        usual = sum(rates.values()) / len(rates) * scaling.per_slot
        peak = _BUSY * usual * scaling.maximum
        service = LoadedService.of(DAY_WITH_A_BURST, peak, ticks, rates, rules.seed)
        return cls(
            cloud, fleet.group, fleet.store, service=service, scaling=scaling, rules=rules, prices=prices
        )

    def tick(self, now: float) -> None:
        """See ``Fleet``: first simulate the minute before."""
        if self._began:
            self._pass(now)
        self._began = True
        CloudFleet.tick(self, now)

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``."""
        instance_id = CloudFleet.launched(self, pool, market, side, warm=warm)
        self._purchases[instance_id] = pool, market
        return instance_id

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        """See ``Fleet``."""
        interrupted = list(instance_ids)
        CloudFleet.noticed(self, interrupted, deadline)
        drain = self.cloud.group(self.group).drain_seconds
        self._drains |= dict.fromkeys(interrupted, deadline - drain)

    def priced(self, prices: Mapping[Pool, float]) -> None:
        """See ``Fleet``."""
        CloudFleet.priced(self, prices)
        self._spot |= prices

    def reconcile(self) -> Orders:
        """See ``Fleet``; the target is the one that the scaler wrote."""
        orders = CloudFleet.reconcile(self)
        name = names.group_parameter(self.cloud.deployment.stack, self.group, names.PARAMETER_TARGET)
        self._target = int(self.cloud.clients("ssm").get_parameter(Name=name)["Parameter"]["Value"])
        return replace(orders, target=self._target, wake_at=self._now + TICK_SECONDS)

    def account(self, end: float, standby: float) -> LoadAccount:
        """Return the load account until ``end``; ``standby`` is the warm pool's bill in On-Demand hours."""
        self._pass(end)
        view = self.cloud.group(self.group)
        result = self.service.account(
            self.scaling.wait_seconds, self.rules.warm_up_ticks, self.prices, view.slots
        )
        return replace(result, paid=result.paid + standby * self.prices[view.instance_types[0]])

    def _pass(self, now: float) -> None:
        """Simulate the minute that has passed and write the reports of queue watcher and workers."""
        view = self.cloud.group(self.group)
        kinds = {
            instance_id: self._purchases[instance_id][0].instance_type
            for instance_id in self._working
            if self._serves(instance_id, now)
        }
        ready: Counter[str] = Counter()
        for kind in kinds.values():
            ready[kind] += view.slots.get(kind, 1)
        played = self.service.minute(ready, self._target * self.scaling.per_slot, self._paid())
        total = sum(ready.values())
        able = self.service.minutes[-1].able
        for instance, kind in kinds.items():
            rate = played.ended * self.service.speeds[kind] / able / TICK_SECONDS
            self._done[instance] = self._done.get(instance, 0.0) + rate * TICK_SECONDS
            self._report(instance, rate, played.busy_seconds / TICK_SECONDS / total, now)
        arriving, leaving = played.arrived / TICK_SECONDS, played.ended / TICK_SECONDS
        row = QueueState(now, played.waiting, played.started, float(played.oldest), arriving, leaving, total)
        self.cloud.clients("dynamodb").put_item(
            TableName=registry_reader(self.cloud.deployment).table, Item=backlog.dump(self.group, row)
        )

    def _report(self, instance: str, rate: float, busy: float, now: float) -> None:
        done, share = int(self._done[instance]), min(1.0, busy)

        def report(well: WorkerReport) -> WorkerReport:
            return replace(well, reported_at=now, done=done, rate=rate, busy=share, gpu_use=100 * share)

        self.cloud.override_reports(instance, report)

    def _serves(self, instance: str, now: float) -> bool:
        drains = self._drains.get(instance)
        return instance in self._purchases and (drains is None or now < drains)

    def _paid(self) -> float:
        """Return the cost of the running instances for one minute, in US dollars."""
        hourly = 0.0
        in_place = self.cloud.group(self.group).on_demand_prices  # the base of the market's price fractions
        for pool, market in (
            self._purchases[instance] for instance in self._alive if instance in self._purchases
        ):
            kind = pool.instance_type
            if market is PurchaseOption.SPOT:
                hourly += self._spot.get(pool, self.rules.spot_price) * in_place[kind]
            else:
                hourly += self.prices[kind]
        return hourly * TICK_SECONDS / 3600


def _prices(view: GroupView, region: str) -> dict[str, float]:
    prices = {name: on_demand_prices.price(name, region) for name in view.instance_types}
    if unknown := sorted(name for name, price in prices.items() if price is None):
        raise LocalCloudError(
            f"group {view.name!r}: unknown On-Demand price of {', '.join(unknown)}, "
            "needed for the cost of a load"
        )
    return {name: price for name, price in prices.items() if price is not None}


def _scaling(cloud: LocalCloud, group: str) -> ScalingSettings:
    name = names.group_parameter(cloud.deployment.stack, group, names.PARAMETER_SCALING)
    ssm = cloud.clients("ssm")
    try:
        text = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    except ssm.exceptions.ParameterNotFound:
        raise LocalCloudError(
            f"group {group!r} has no scaling, allowed with a load: a service with scaling"
        ) from None
    return settings.parse(text)
