"""A fleet whose instances say themselves when they work: the engine counts them ready then, and only then."""

from __future__ import annotations

from dataclasses import dataclass, field

from lambdas.core.capacity.policies import DEFAULT, build
from lambdas.core.model import Group, GroupRole, Pool, PurchaseOption
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, Orders, SelfReporting
from market.replay.groups import GroupShape
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace

POOL = Pool("g6.xlarge", "us-west-2a")


@dataclass
class Slow(LightFleet):
    """Works from the tenth to the twentieth minute after the first launch, whatever a cold start takes."""

    began: float | None = None
    all_ids: set[str] = field(default_factory=set)

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        self.began = self._now if self.began is None else self.began
        instance_id = LightFleet.launched(self, pool, market, side, warm=warm)
        self.all_ids.add(instance_id)
        return instance_id

    def working(self) -> set[str]:
        if self.began is None or not 600 <= self._now - self.began < 1200:
            return set()
        return self.all_ids

    def reconcile(self) -> Orders:
        orders = LightFleet.reconcile(self)
        return Orders(orders.desired, orders.released, self._now + 60)


def test_readiness_is_what_the_fleet_reports() -> None:
    fleet = Slow(Group("job", 1, 2, fallback=False), build(DEFAULT))
    assert isinstance(fleet, SelfReporting)
    assert not isinstance(LightFleet(fleet.group, fleet.policy), SelfReporting)
    rules = Rules(warm_up_ticks=0)
    market = SpotMarket([PoolTrace("us-west-2a", 60.0, (1,) * 40)], rules, 1)
    replay = Replay(market, rules, fleet, GroupShape((POOL,)), 1)
    ledger = replay.run()
    ready = [tick for span in ledger.spans if span.ready for tick in range(span.tick, span.tick + span.ticks)]
    assert ready == list(range(10, 20))
