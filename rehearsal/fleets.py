"""A group of the local cloud as a fleet of the market engine, which applies the engine's events in moto.

The controller is not called directly: its wake-up messages pass the deployed rules and queue to the deployed
archive; the resulting desired capacity is read from the APIs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts import names
from gpu_spot.status.decisions import DecisionLine, describe_action
from lambdas.aws.budget import UNLIMITED
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import ready_since
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.fleet import Orders
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.running.functions import Invocation
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.machines.group import Nodes

_FAILURES: Final = ("action failed", "group not reconciled")
"""Log messages after which the controller continues but a rehearsal fails: here every failure is a bug."""


@dataclass
class CloudFleet:
    """One group of a ``LocalCloud`` behind the ``Fleet`` protocol; ``store`` reads the controller's memory.

    ``nodes`` run the agents of a job or shared host, which start ``boots`` seconds after the launch,
    ``warm_boots`` after the start of a warm instance; a service's workers are written without them.
    ``decisions`` collects the controller's decision log lines.
    """

    cloud: LocalCloud
    group: str
    store: MemoryStore
    nodes: Nodes | None = None
    boots: float = 0.0
    warm_boots: float = 0.0
    decisions: list[DecisionLine] = field(default_factory=list)
    _now: float = 0.0
    _working: dict[str, None] = field(default_factory=dict)
    _alive: set[str] = field(default_factory=set)
    _refusing: dict[GroupRole, str] = field(default_factory=dict)
    _overtaken: set[GroupRole] = field(default_factory=set)
    _placed: list[tuple[str, Pool, PurchaseOption]] = field(default_factory=list)

    def ask(self, market: Callable[[str, PurchaseOption], Pool | None]) -> None:
        """See ``ByZone``."""

        def buy(zone: str, role: GroupRole) -> str | None:
            option = PurchaseOption.SPOT if role is GroupRole.PRIMARY else PurchaseOption.ON_DEMAND
            pool = market(zone, option)
            if pool is None:
                return None
            instance_id = self.launched(pool, option, role, warm=False)
            self._placed.append((instance_id, pool, option))
            return instance_id

        self.cloud.buy_by_zone(self.group, buy)

    def tick(self, now: float) -> None:
        """See ``Fleet``."""
        if self.nodes is not None:
            self.nodes.advance(now)
        self._now = now
        self.cloud.set_time(now)
        if self.nodes is None:
            self.cloud.let_go(self.group)  # the agents of nodes complete the hooks themselves

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``."""
        prepared = self._prepared() if warm else ()
        if prepared:
            instance_id = self.cloud.start_warm(self.group, prepared[0])
        else:
            instance_id = self.cloud.launch(self.group, side, pool.instance_type, pool.zone, market)
        self._alive.add(instance_id)
        self._overtaken.add(side)
        if self.nodes is not None:
            self.nodes.launch(instance_id, self.warm_boots if warm else self.boots)
        return instance_id

    def ready(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``: workers send heartbeats from then on, whether the controller runs or not."""
        first = dict.fromkeys(instance_ids)
        self._working.update(first)
        self.cloud.heartbeat(first)

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        """See ``Fleet``."""
        for instance_id in instance_ids:
            self.cloud.notice(instance_id, deadline)
            if self.nodes is not None:
                self.nodes.notice(instance_id, deadline)

    def died(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        ended = list(instance_ids)
        if self.nodes is not None:
            for instance_id in ended:
                self.nodes.end(instance_id)
        self.cloud.kill(ended)
        self._forget(ended)

    def refused(self, side: GroupRole, message: str | None) -> None:
        """See ``Fleet``. In AWS only the next successful activity shows that launches work again."""
        self._overtaken.discard(side)
        if message is None:
            self._refusing.pop(side, None)
        else:
            self._refusing[side] = message
            self.cloud.refuse(self.group, side, message)

    def recommended(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        for instance_id in instance_ids:
            self.cloud.rebalance(instance_id)

    def warm_lost(self) -> None:
        """See ``Fleet``."""
        for instance_id in self._prepared()[:1]:
            self.cloud.lose_warm(self.group, instance_id)

    def priced(self, prices: Mapping[Pool, float]) -> None:
        """See ``Fleet``."""
        self.cloud.quote(self.group, prices)

    def reconcile(self) -> Orders:
        """See ``Fleet``: send heartbeats, fire the schedule, run the functions, then read the APIs.

        The nodes' next event also limits the next run.
        """
        self._refuse_again()
        self._placed.clear()
        self.cloud.heartbeat(self._working)
        self.cloud.tick_schedule()
        for invocation in self.cloud.run_functions():
            self._record(invocation)
        released = sorted(self._alive - self.cloud.alive(self.group))
        self._forget(released)
        moments = [self.store.load(self.group).wake_at]
        if self.nodes is not None:
            moments.append(self.nodes.wake_at)
        wake_at = min((moment for moment in moments if moment is not None), default=None)
        return Orders(self.cloud.launchable(self.group), tuple(released), wake_at, tuple(self._placed))

    def _prepared(self) -> tuple[str, ...]:
        """Return the ids of the warm pool's instances, refilled if it is empty."""
        if not self.cloud.warm(self.group):
            self.cloud.fill_warm_pools()
        return self.cloud.warm(self.group)

    def _refuse_again(self) -> None:
        """Record launch failures again: AWS retries, so they follow successful launches in the activities."""
        for side, message in self._refusing.items():
            if side in self._overtaken:
                self.cloud.refuse(self.group, side, message)
        self._overtaken.clear()

    def _forget(self, instance_ids: Iterable[str]) -> None:
        for instance_id in instance_ids:
            self._alive.discard(instance_id)
            self._working.pop(instance_id, None)
            if self.nodes is not None:
                self.nodes.release(instance_id)

    def _record(self, invocation: Invocation) -> None:
        lines = [json.loads(line) for line in invocation.log if line.startswith("{")]
        self._judge(invocation, lines)
        for line in lines:
            if line.get("message") == "decision" and line["group"] == self.group:
                actions = tuple(describe_action(action) for action in line["actions"])
                self.decisions.append(DecisionLine(self._now, self.group, actions, line["reason"]))

    def _judge(self, invocation: Invocation, lines: Iterable[Mapping[str, Any]]) -> None:
        """Raise ``LocalCloudError`` for a failed invocation.

        Not if it maintains users of brokers: a broker of the local cloud has no management API.
        """
        if f"-{names.SERVICE_BROKER_USERS}-" in invocation.function:
            return
        failure: Mapping[str, Any] = next((line for line in lines if line.get("message") in _FAILURES), {})
        if invocation.error or invocation.failed or failure:
            reason = (
                invocation.error
                or failure.get("exception")
                or failure.get("message")
                or "no error in its log"
            )
            last = str(reason).strip().splitlines()[-1]
            raise LocalCloudError(f"function {invocation.function!r} failed: {last}")


class TrainingFleet(CloudFleet):
    """A group with ``nodes``, whose agents report readiness themselves."""

    def working(self) -> set[str]:
        """See ``SelfReporting``: the registry as the controller reads it."""
        slots = dict.fromkeys(self._alive, 1)
        workers = self.cloud.registry.read(self.group, slots, UNLIMITED).workers
        return {i for i, worker in workers.items() if ready_since(worker, 1, self._now) is not None}
