"""Who holds the instances that the market sells: the interface, and the light fleet of plain dataclasses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from contracts.group.replacement_requests import ReplacementRequest
from contracts.group.rollout_request import RolloutRequest
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import PRICE_SECONDS, Memory, apply_events
from lambdas.core.capacity.plan import Policy
from lambdas.core.events import Event, InterruptionNotice, RebalanceRecommendation
from lambdas.core.launch_failures import LAUNCH_FAILURE_SECONDS, classify
from lambdas.core.model import (
    Group,
    GroupRole,
    Instance,
    LaunchFailure,
    Observation,
    Pool,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
)


@dataclass(frozen=True, slots=True)
class Orders:
    """The controller's orders after a pass: capacities, terminated instances, the time of the next pass.

    ``placed`` are on-demand instances that it had launched in a zone of its choice while it looked.
    ``target`` is what the group is to hold from now on, None where that never changes.
    """

    desired: Mapping[GroupRole, int]
    released: tuple[str, ...] = ()
    wake_at: float | None = None
    placed: tuple[tuple[str, Pool], ...] = ()
    target: int | None = None


class Fleet(Protocol):
    """The counterpart of the market engine: receives what AWS does, returns the controller's requests.

    All times are epoch seconds of the replay.
    """

    def tick(self, now: float) -> None:
        """It is ``now``; whatever the other methods tell happens at this moment."""
        ...

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """Take a new instance in, out of the warm pool if ``warm``, and return its id."""
        ...

    def ready(self, instance_ids: Iterable[str]) -> None:
        """The workers of these instances have sent their first heartbeat."""
        ...

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        """AWS announces the end of these instances."""
        ...

    def died(self, instance_ids: Iterable[str]) -> None:
        """AWS has taken these instances."""
        ...

    def recommended(self, instance_ids: Iterable[str]) -> None:
        """EC2 sees an elevated risk for these instances."""
        ...

    def warm_lost(self) -> None:
        """An instance of the warm pool could not be started, and is gone."""
        ...

    def refused(self, side: GroupRole, message: str | None) -> None:
        """The newest launch of a side failed with ``message``; ``None``: nothing is refused any more."""
        ...

    def priced(self, prices: Mapping[Pool, float]) -> None:
        """Spot costs this now, as a fraction of on-demand."""
        ...

    def reconcile(self) -> Orders:
        """Let the controller observe, decide and act."""
        ...


@runtime_checkable
class Rebalanced(Protocol):
    """A fleet whose group may replace by capacity rebalancing; no deployed one does (ADR 0020)."""

    def ending(self, instance_ids: Iterable[str], deadline: float) -> None:
        """The group ends these instances, as capacity rebalancing does; its hook waits until ``deadline``."""
        ...

    def ended(self, instance_ids: Iterable[str]) -> None:
        """The group has ended these instances."""
        ...


@runtime_checkable
class ByZone(Protocol):
    """A fleet whose controller may ask for on-demand in one zone while it looks; see ``Orders.placed``."""

    def ask(self, market: Callable[[str], Pool | None]) -> None:
        """Ask ``market`` for what on-demand it sells in a zone now, ``None``: nothing."""
        ...


@runtime_checkable
class SelfReporting(Protocol):
    """A fleet whose instances say themselves when they work; the cold starts of the rules are not heard."""

    def working(self) -> Collection[str]:
        """Return the instances whose workers have been heard of lately."""
        ...


@dataclass(slots=True)
class LightFleet:
    """A fleet in memory that asks ``decide()`` directly: thousands of looks a second.

    ``weights`` as in ``GroupShape``; replacement requests and roll-outs come from the health checker.
    """

    group: Group
    policy: Policy
    memory: Memory = field(default_factory=Memory)
    weights: Mapping[str, int] = field(default_factory=dict)
    replacement_requests: tuple[ReplacementRequest, ...] = ()
    rolling: RolloutRequest | None = None
    _now: float = 0.0
    _instances: dict[str, Instance] = field(default_factory=dict)
    _desired: dict[GroupRole, int] = field(default_factory=lambda: dict.fromkeys(GroupRole, 0))
    _refusals: dict[GroupRole, LaunchFailure] = field(default_factory=dict)
    _spot_prices: dict[str, float] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)
    _refusing: set[GroupRole] = field(default_factory=set)
    _launched: set[GroupRole] = field(default_factory=set)
    _serial: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def tick(self, now: float) -> None:
        """See ``Fleet``."""
        self._now = now
        self._launched.clear()

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``; in memory a warm instance is like any other."""
        self._launched.add(side)
        if side not in self._refusing:
            self._refusals.pop(side, None)
        instance_id = f"i-{next(self._serial):08d}"
        slots = self.weights.get(pool.instance_type, 1)
        self._instances[instance_id] = Instance(instance_id, pool, market, side, self._now, slots=slots)
        return instance_id

    def ready(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        for instance_id in instance_ids:
            self._instances[instance_id] = replace(self._instances[instance_id], ready_since=self._now)

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        """See ``Fleet``; the event is still heard if the instance ends before the next look."""
        for instance_id in instance_ids:
            self._instances[instance_id] = replace(self._instances[instance_id], deadline=deadline)
            self._events.append(InterruptionNotice(instance_id, deadline))

    def recommended(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        self._events += [RebalanceRecommendation(instance_id) for instance_id in instance_ids]

    def died(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        for instance_id in instance_ids:
            del self._instances[instance_id]

    def ending(self, instance_ids: Iterable[str], deadline: float) -> None:
        """See ``Rebalanced``: the controller counts members held by a hook as interrupted."""
        self.noticed(instance_ids, deadline)

    def ended(self, instance_ids: Iterable[str]) -> None:
        """See ``Rebalanced``."""
        self.died(instance_ids)

    def warm_lost(self) -> None:
        """See ``Fleet``; the controller does not look into the pool."""

    def priced(self, prices: Mapping[Pool, float]) -> None:
        """See ``Fleet``."""
        self._spot_prices = {str(pool): price for pool, price in prices.items()}

    def refused(self, side: GroupRole, message: str | None) -> None:
        """See ``Fleet``: a refusal is the newest that a side says until it launches again."""
        if message is not None:
            self._refusing.add(side)
            self._refusals[side] = LaunchFailure(side, classify(message), self._now, message)
            return
        self._refusing.discard(side)
        if side in self._launched:
            self._refusals.pop(side, None)

    def reconcile(self) -> Orders:
        """See ``Fleet``: a termination is an event and runs the controller once more."""
        released: list[str] = []
        self.memory = apply_events(self.memory, self._events, self._now)
        self._events.clear()
        while True:
            decision = self.decide()
            terminated = self._carry_out(decision)
            released.extend(terminated)
            if not terminated:
                return Orders(dict(self._desired), tuple(released), decision.next_run_at)

    def _carry_out(self, decision: Decision) -> list[str]:
        """Do what was decided, and return who was released."""
        released: list[str] = []
        for action in decision.actions:
            match action:
                case SetDesired(side, capacity):
                    self._desired[side] = capacity
                case TerminateInstances(side, instance_ids, _, slots):
                    self._desired[side] -= slots
                    released.extend(instance_ids)
                    for instance_id in instance_ids:
                        del self._instances[instance_id]
                case _:
                    pass
        return released

    def decide(self) -> Decision:
        """Return what the controller decides about the group as it is, and remember what it will.

        Prices and refusals are as old, and as soon forgotten, as where they are read from AWS.
        """
        priced_at = self.memory.priced_at
        if priced_at is None or self._now - priced_at >= PRICE_SECONDS:
            self.memory = replace(self.memory, spot_prices=self._spot_prices, priced_at=self._now)
        observation = Observation(
            group=self.group,
            primary_desired=self._desired[GroupRole.PRIMARY],
            fallback_desired=self._desired[GroupRole.FALLBACK],
            instances=tuple(self._instances.values()),
            launch_failures=tuple(
                r for r in self._refusals.values() if r.failed_at > self._now - LAUNCH_FAILURE_SECONDS
            ),
            spot_prices=self.memory.spot_prices,
            replacement_requests=tuple(
                request for request in self.replacement_requests if request.instance in self._instances
            ),
            rollout_request=self.rolling,
        )
        decision = decide(observation, self.policy, self.memory, self._now)
        self.memory = decision.memory
        return decision
