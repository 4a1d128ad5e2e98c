"""Fleets that hold a replay's instances: the interface, and the in-memory fleet of dataclasses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from contracts.group.config import GroupConfig, PolicyChoice
from contracts.group.replacement_requests import ReplacementRequest
from contracts.group.rollout_request import NO_REQUEST, RolloutRequest
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

    ``placed`` are instances that it launched in a zone of its choice during the pass: Spot in the primary
    group, On-Demand in the fallback.
    ``target`` is the group's new target, None if it never changes.
    """

    desired: Mapping[GroupRole, int]
    released: tuple[str, ...] = ()
    wake_at: float | None = None
    placed: tuple[tuple[str, Pool, PurchaseOption], ...] = ()
    target: int | None = None


class Fleet(Protocol):
    """The counterpart of the market engine: receives AWS's events, returns the controller's requests.

    All times are epoch seconds of the replay.
    """

    def tick(self, now: float) -> None:
        """Set the current time, at which the following calls happen."""
        ...

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """Add a new instance, from the warm pool if ``warm``, and return its id."""
        ...

    def ready(self, instance_ids: Iterable[str]) -> None:
        """The workers of these instances have sent their first heartbeat."""
        ...

    def noticed(self, instance_ids: Iterable[str], deadline: float) -> None:
        """AWS sends an interruption notice for these instances."""
        ...

    def died(self, instance_ids: Iterable[str]) -> None:
        """AWS has interrupted these instances."""
        ...

    def recommended(self, instance_ids: Iterable[str]) -> None:
        """EC2 sends rebalance recommendations for these instances."""
        ...

    def warm_lost(self) -> None:
        """An instance of the warm pool could not be started and is lost."""
        ...

    def refused(self, side: GroupRole, message: str | None) -> None:
        """The latest launch of a group role failed with ``message``; ``None``: launches succeed again."""
        ...

    def priced(self, prices: Mapping[Pool, float]) -> None:
        """Set the Spot price, as a fraction of On-Demand."""
        ...

    def reconcile(self) -> Orders:
        """Run one pass of the controller."""
        ...


@runtime_checkable
class Rebalanced(Protocol):
    """A fleet whose group may use Capacity Rebalancing; no deployed group does (ADR 0020)."""

    def ending(self, instance_ids: Iterable[str], deadline: float) -> None:
        """The group terminates these instances by Capacity Rebalancing; its hook waits until ``deadline``."""
        ...

    def ended(self, instance_ids: Iterable[str]) -> None:
        """The group has terminated these instances."""
        ...


@runtime_checkable
class ByZone(Protocol):
    """A fleet whose controller may launch in one zone during a pass; see ``Orders.placed``."""

    def ask(self, market: Callable[[str, PurchaseOption], Pool | None]) -> None:
        """Set the callback that returns a zone's pool for a launch; ``None``: no capacity."""
        ...


@runtime_checkable
class SelfReporting(Protocol):
    """A fleet whose instances report readiness themselves; the cold starts of the rules are ignored."""

    def working(self) -> Collection[str]:
        """Return the instances whose workers sent a recent heartbeat."""
        ...


def simulated_group(
    target: int,
    maximum: int,
    *,
    drain_seconds: float = 0.0,
    break_before_make: bool = False,
    fallback: bool = True,
    zones: tuple[str, ...] = (),
) -> Group:
    """Return a group of a replay; the arguments are those of `GroupConfig`."""
    config = GroupConfig(
        kind="mixed-asg",
        primary="primary",
        fallback="fallback" if fallback else None,
        base=0,
        spot_percentage=100,
        maximum=maximum,
        slots={},
        drain_seconds=round(drain_seconds),
        break_before_make=break_before_make,
        zones=zones,
        policy=PolicyChoice(""),  # the fleet has it
    )
    return Group.of("replay", config, target)


@dataclass(slots=True)
class LightFleet:
    """An in-memory fleet that calls ``decide()`` directly: thousands of passes per second.

    ``weights`` as in ``GroupShape``; replacement requests and roll-outs come from the health checker.
    """

    group: Group
    policy: Policy
    memory: Memory = field(default_factory=Memory)
    weights: Mapping[str, int] = field(default_factory=dict)
    replacement_requests: tuple[ReplacementRequest, ...] = ()
    rolling: RolloutRequest = NO_REQUEST
    _now: float = 0.0
    _instances: dict[str, Instance] = field(default_factory=dict)
    _desired: dict[GroupRole, int] = field(default_factory=lambda: dict.fromkeys(GroupRole, 0))
    _refusals: dict[GroupRole, LaunchFailure] = field(default_factory=dict)
    _spot_prices: dict[str, float] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)
    _refusing: set[GroupRole] = field(default_factory=set)
    _launched: set[GroupRole] = field(default_factory=set)
    _serial: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _market: Callable[[str, PurchaseOption], Pool | None] = lambda zone, option: None

    def ask(self, market: Callable[[str, PurchaseOption], Pool | None]) -> None:
        """See ``ByZone``."""
        self._market = market

    def tick(self, now: float) -> None:
        """See ``Fleet``."""
        self._now = now
        self._launched.clear()

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``; a warm instance is like any other here."""
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
        """See ``Fleet``; the event is processed even if the instance ends before the next pass."""
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
        """See ``Fleet``; the controller does not observe the pool."""

    def priced(self, prices: Mapping[Pool, float]) -> None:
        """See ``Fleet``."""
        self._spot_prices = {str(pool): price for pool, price in prices.items()}

    def refused(self, side: GroupRole, message: str | None) -> None:
        """See ``Fleet``: a launch failure is the role's latest activity until a launch succeeds."""
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
        placed: list[tuple[str, Pool, PurchaseOption]] = []
        self.memory = apply_events(self.memory, self._events, self._now)
        self._events.clear()
        while True:
            decision = self.decide()
            terminated = self._carry_out(decision, placed)
            released.extend(terminated)
            if not terminated:
                return Orders(dict(self._desired), tuple(released), decision.next_run_at, tuple(placed))

    def _carry_out(self, decision: Decision, placed: list[tuple[str, Pool, PurchaseOption]]) -> list[str]:
        """Apply a decision; return what is terminated, and add what is launched in a zone to ``placed``."""
        released: list[str] = []
        for action in decision.actions:
            match action:
                case SetDesired(side, capacity, _, zone, only_there=True):
                    if (pool := self._market(zone, PurchaseOption.SPOT)) is not None:
                        self._desired[side] = capacity
                        launched = self.launched(pool, PurchaseOption.SPOT, side, warm=False)
                        placed.append((launched, pool, PurchaseOption.SPOT))
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
        """Return the controller's decision for the group's current state, and store the controller's memory.

        Prices and launch failures have the same age and lifetime as those that are read from AWS.
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
