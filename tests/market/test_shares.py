"""The On-Demand share of a Spot Fleet over a replayed week, for every share and kind of fleet."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Final

import pytest

from contracts.group.warm_pool import on_demand_share
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies import build
from lambdas.core.model import Group, GroupRole, Observation, PurchaseOption
from market.replay import fleet as replayed
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, Orders
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import TICK_SECONDS, Rules
from market.supply import drawn_market, placement
from market.supply.spot import SpotMarket
from tests.core.build import group as make_group
from tests.oracles.shares import SHARES, on_demand_by_awss_rule
from tests.soak import sample

HOURS: Final = 7 * 24
TARGET: Final = 8
SCALED: Final = (8, 13, 5, 3, 7, 2, 10)
"""Targets of a scaled group, one after the other, each for six hours."""
SCALED_TICKS: Final = round(6 * 3600 / TICK_SECONDS)
ZONES: Final = ("us-west-2a", "us-west-2b", "us-west-2c")


@dataclass(slots=True)
class RequestedFleet(LightFleet):
    """A Spot Fleet of type request: nothing replaces what it loses."""

    is_launched: bool = False

    def reconcile(self) -> Orders:
        capacity = len(self._instances) if self.is_launched else self.group.target
        self.is_launched = self.is_launched or bool(self._instances)
        if self.is_launched:
            capacity = len(self._instances)
        return Orders({GroupRole.PRIMARY: capacity, GroupRole.FALLBACK: 0})


@dataclass
class Shares:
    """Capacity and On-Demand part of the primary group, at each tick at which no launch of it is due."""

    replay: Replay
    fleet: LightFleet
    is_scaled: bool
    ticks: int = 0
    at_capacity: int = 0

    def __post_init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()

    def look(self, tick: int, span: Span) -> None:
        primary = [i for i in self.replay.instances if i.side is GroupRole.PRIMARY]
        on_demand = sum(i.market is PurchaseOption.ON_DEMAND for i in primary)
        desired = self.fleet._desired[GroupRole.PRIMARY]
        self.ticks += 1
        if len(primary) == desired and not self.replay._primary.short:
            self.at_capacity += 1
            self.seen.add((desired, on_demand))
        if self.is_scaled:
            target = SCALED[(tick + 1) // SCALED_TICKS % len(SCALED)]
            self.fleet.group = replace(self.fleet.group, target=target)


def as_spot_fleet(observation: Observation, policy: Policy, memory: Memory, now: float) -> Decision:
    """Decide as for a fleet whose On-Demand target was set with its capacity."""
    group, capacity = observation.group, observation.primary_desired
    share = on_demand_share(capacity, group.config.base, group.config.spot_percentage)
    return decide(replace(observation, on_demand_targets={GroupRole.PRIMARY: share}), policy, memory, now)


def week(fleet: LightFleet, is_scaled: bool) -> Shares:
    rules = Rules(seed=3, warm_up_ticks=0)
    market = SpotMarket(drawn_market.draw(len(ZONES), HOURS, 3), rules, 8)
    pools = placement.assign(market.names, ZONES, ["g5.xlarge"])
    shape = GroupShape(
        pools, fleet.group.config.base, fleet.group.config.spot_percentage, separate_targets=True
    )
    replay = Replay(market, rules, fleet, shape, TARGET)
    shares = Shares(replay, fleet, is_scaled)
    for tick in range(0, market.ticks, 5):  # also when nothing happens
        heapq.heappush(replay._agenda, tick)
    replay.run(on_tick=shares.look)
    return shares


def group(base: int, percentage: int) -> Group:
    return make_group("inference", TARGET, 2 * max(SCALED), base=base, spot_percentage=percentage)


@pytest.mark.parametrize("is_scaled", [False, True], ids=["maintain", "scaled"])
@pytest.mark.parametrize(("base", "percentage"), sample(SHARES, 3))
def test_a_fleet_at_its_capacity_has_awss_share_through_a_week(
    monkeypatch: pytest.MonkeyPatch, base: int, percentage: int, is_scaled: bool
) -> None:
    monkeypatch.setattr(replayed, "decide", as_spot_fleet)
    shares = week(LightFleet(group(base, percentage), build("expected-cost")), is_scaled)
    wrong = {
        (capacity, on_demand)
        for capacity, on_demand in shares.seen
        if on_demand != on_demand_by_awss_rule(capacity, base, percentage)
    }
    assert not wrong
    assert {capacity for capacity, _ in shares.seen} >= (set(SCALED) if is_scaled else {TARGET})
    assert shares.at_capacity >= 0.5 * shares.ticks


@pytest.mark.parametrize(("base", "percentage"), sample(SHARES, 3))
def test_a_request_keeps_its_on_demand_share_and_loses_spot_only(base: int, percentage: int) -> None:
    fleet = RequestedFleet(group(base, percentage), build("expected-cost"))
    shares = week(fleet, is_scaled=False)
    share = on_demand_by_awss_rule(TARGET, base, percentage)
    left = [i.market for i in shares.replay.instances]
    assert left.count(PurchaseOption.ON_DEMAND) == share
    assert len(left) <= TARGET
