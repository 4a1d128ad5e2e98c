"""Days of a service with injected AWS faults, and a check of the controller's invariants at every tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.fleet import Orders
from market.rules import TICK_SECONDS
from pulumi_on_moto.running.functions import Call, Invocation
from rehearsal.cloud.fault_injection import FaultInjection
from rehearsal.fleets import CloudFleet
from tests.e2e.world import World, living, load, small

TARGET: Final = 4
UNKNOWABLE: Final = 180.0
"""Seconds for which the loss of an unannounced instance can be hidden: its heartbeats are not yet old."""
POOL_SIZE: Final = 3
"""Instances that a sample of the market stands for: fewer than the target, so that spot is often short."""
_NAMING: Final = {
    "SetInstanceProtection": "InstanceIds",
    "TerminateInstanceInAutoScalingGroup": "InstanceId",
    "TerminateInstances": "InstanceIds",
}


@dataclass(slots=True)
class WatchedFleet(CloudFleet):
    """Keeps an account of its own of who lives, who works and who was named, and holds decisions to it."""

    maximum: int = field(kw_only=True)
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _side: dict[str, GroupRole] = field(default_factory=dict)
    _interrupted: set[str] = field(default_factory=set)
    _named: set[str] = field(default_factory=set)
    _lost: dict[str, float] = field(default_factory=dict)

    # `dataclass(slots=True)` creates a new class, so a plain `super()` would refer to the old one.

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        instance_id = CloudFleet.launched(self, pool, market, side, warm=warm)
        self._side[instance_id] = side
        staying = self._alive - self._interrupted
        self._hold(len(staying) <= self.maximum, f"{len(staying)} live, the maximum is {self.maximum}")
        return instance_id

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        interrupted = list(instance_ids)
        self._interrupted.update(interrupted)
        CloudFleet.noticed(self, interrupted, deadline)

    def died(self, instance_ids: Iterable[str]) -> None:
        gone = list(instance_ids)
        self._lost.update(
            {one: self._now for one in gone if one in self._working and one not in self._interrupted}
        )
        CloudFleet.died(self, gone)

    def reconcile(self) -> Orders:
        working, sides = set(self._working), dict(self._side)
        orders = CloudFleet.reconcile(self)
        for instance_id in orders.released:
            named = instance_id in self._named or instance_id in self._interrupted
            self._hold(named, f"{instance_id} was terminated without a request")
            if instance_id not in working:
                self.counts[f"{sides[instance_id]} released while booting"] += 1
        if working & set(orders.released) & self._named:
            lasting = set(self._working) - self._interrupted
            hidden = [one for one, at in self._lost.items() if self._now - at < UNKNOWABLE]
            enough = len(lasting) + len(hidden) >= TARGET
            self._hold(enough, f"a worker was released, and {len(lasting)} of {TARGET} were left")
        self.counts["passes"] += 1
        self.counts["released"] += len(orders.released)
        return replace(orders, wake_at=self._now + TICK_SECONDS)  # no tick is quiet: faults come in any

    def overhear(self, call: Call) -> None:
        """Note whom the controller names."""
        if call.operation in _NAMING:
            named = call.params[_NAMING[call.operation]]
            self._named.update([named] if isinstance(named, str) else named)

    def _judge(self, invocation: Invocation, lines: Iterable[Mapping[str, Any]]) -> None:
        # A failed read or a conflict returns messages to the queue; only an uncaught exception is a crash.
        self._hold(not invocation.error, f"the function crashed: {invocation.error}")
        self.counts["runs"] += 1
        log = "\n".join(invocation.log)
        self.counts["refused calls"] += log.count("RequestLimitExceeded") + log.count("Throttling")
        self.counts["runs with messages sent back"] += bool(invocation.failed)

    def _hold(self, promise: bool, otherwise: str) -> None:
        if not promise:
            self.broken.append(f"{self._now:.0f}: {otherwise}")


def watched(world: World) -> WatchedFleet:
    """Return the first group of a deployment, watched."""
    undisturbed = world.fleet()
    fleet = WatchedFleet(world.cloud, undisturbed.group, undisturbed.store, maximum=world.group.group.maximum)
    world.cloud.listen(fleet.overhear)
    return fleet


def played(hours: float, seed: int, faults: FaultInjection) -> dict[str, Any]:
    """Play the dev stack; return, as JSON values, what broke, the counts, and the ledger's account."""
    with living(load("dev", small(TARGET)), seed, faults) as world:
        fleet = watched(world)
        ledger = world.replay(fleet, hours, pool_size=POOL_SIZE).run()
    account = {"availability": ledger.availability, "cost": ledger.cost, **ledger.counts}
    return {"broken": fleet.broken, "counts": dict(fleet.counts), "account": account}
