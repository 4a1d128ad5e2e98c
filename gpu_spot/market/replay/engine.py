"""The one replay engine: it plays AWS tick by tick, for the light fleet and for the local cloud alike.

A tick: the market takes, workers become ready, drops are announced, the controller looks, the groups launch.
Ticks in which none of this can change anything are not played: nothing changed in the tick before, and no
capacity change, announcement, boot, drain, deadline or wake-up of the controller lies in them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from gpu_spot.market.replay.fleet import Fleet, Orders, Recommended, SelfReporting
from gpu_spot.market.replay.groups import ON_DEMAND_REFUSAL, SPOT_REFUSAL, GroupShape, HeldInstance, Offer
from gpu_spot.market.replay.ledger import Happening, Ledger, Span
from gpu_spot.market.replay.warm_pool import WarmPool
from gpu_spot.market.rules import NOTICE_SECONDS, TICK_SECONDS, Rules, ticks
from gpu_spot.market.supply.spot import SpotMarket, draw
from lambdas.core.model import Market, Side


class Replay:
    """One run of one market against one fleet."""

    def __init__(
        self,
        market: SpotMarket,
        rules: Rules,
        fleet: Fleet,
        shape: GroupShape,
        target: int,
        *,
        start: float = 0.0,
        keep_spans: bool = True,
    ) -> None:
        """``start`` is the epoch time of tick 0; ``shape.pools`` are the market's, in order."""
        if target < 1:
            raise ValueError(f"target is {target}, at least 1 is needed")
        if len(shape.pools) != len(market.names):
            raise ValueError(f"{len(market.names)} traces for {len(shape.pools)} pools, one each is needed")
        self.market, self.rules, self.fleet, self.shape = market, rules, fleet, shape
        self.ledger = Ledger(target, rules.warm_up_ticks, keep_spans)
        self.start = start
        self.held: list[HeldInstance] = []
        self._orders = Orders(dict.fromkeys(Side, 0))
        self._refused: dict[Side, bool] = dict.fromkeys(Side, False)
        self._agenda: list[int] = []
        self._allocation = shape.allocation()
        self._warm = WarmPool(rules)
        self._retry_tick = 0
        self._tried = 0
        self._unseen = False
        self.played = 0

    def run(self, ticks: int | None = None, on_tick: Callable[[int, Span], None] | None = None) -> Ledger:
        """Replay from tick 0, at most to the end of the market; ``on_tick`` hears every played tick."""
        end = self.market.ticks if ticks is None else min(ticks, self.market.ticks)
        tick = 0
        while tick < end:
            changed = self._play(tick)
            following = min(end, tick + 1 if changed else self._next(tick))
            span = self._span(tick, following - tick)
            self.ledger.add(
                span, sum(not h.ready for h in self.held) + max(0, span.ready - self.ledger.target)
            )
            if on_tick is not None:
                on_tick(tick, span)
            self.played += 1
            tick = following
        return self.ledger

    def _play(self, tick: int) -> bool:
        now = self.start + tick * TICK_SECONDS
        self.fleet.tick(now)
        changed = self._take(tick, now)
        changed |= self._ripen(tick)
        changed |= self._announce(tick, now)
        self._recommend(tick)
        changed |= self._look(tick)
        changed |= self._launch_primary(tick)
        changed |= self._launch_fallback(tick)
        return changed

    def _next(self, tick: int) -> int:
        """Return the next tick in which something can change."""
        while self._agenda and self._agenda[0] <= tick:
            heapq.heappop(self._agenda)
        moments = [self.market.next_change(tick), *self._agenda[:1]]
        if self._orders.wake_at is not None:
            moments.append(
                max(tick + 1, math.ceil((self._orders.wake_at - self.start) / TICK_SECONDS - 1e-9))
            )
        if self._unseen:
            moments.append(tick + 1)
        if self._retry_tick > tick:
            moments.append(self._retry_tick)
        return min(moments)

    # What the market does.

    def _take(self, tick: int, now: float) -> bool:
        """Take the instances whose deadline has come, and what a pool holds beyond its capacity."""
        dying = [h for h in self.held if h.deadline is not None and h.deadline <= now]
        for pool in range(len(self.market.names)):
            holding = [h for h in self.held if h.pool == pool and h not in dying]
            excess = len(holding) - self.market.capacity(pool, tick)
            if excess > 0:
                victims = draw(self.rules.seed, "victims", pool, tick).sample(holding, excess)
                self._note(tick, "unannounced", len(victims), self.market.names[pool])
                dying.extend(victims)
        if not dying:
            return False
        for pool in sorted({h.pool for h in dying if h.pool is not None}):
            self._note(tick, "interruption", sum(h.pool == pool for h in dying), self.market.names[pool])
            self._allocation.lost(pool)
        self.held = [h for h in self.held if h not in dying]
        self.fleet.died([h.id for h in dying])
        return True

    def _announce(self, tick: int, now: float) -> bool:
        doomed: list[HeldInstance] = []
        for drop in self.market.announcements(tick):
            holding = [h for h in self.held if h.pool == drop.pool]
            safe = [h for h in holding if h.deadline is None]
            excess = min(len(safe), len(holding) - drop.capacity - (len(holding) - len(safe)))
            if excess > 0:
                doomed.extend(draw(self.rules.seed, "notices", drop.pool, tick).sample(safe, excess))
        if not doomed:
            return False
        deadline = now + NOTICE_SECONDS
        for instance in doomed:
            instance.deadline = deadline
        self._note(tick, "notice", len(doomed), "")
        heapq.heappush(self._agenda, tick + ticks(NOTICE_SECONDS))
        heapq.heappush(self._agenda, tick + max(0, ticks(NOTICE_SECONDS - self.rules.drain_seconds)))
        self.fleet.noticed([h.id for h in doomed], deadline)
        return True

    def _recommend(self, tick: int) -> None:
        """Send the rebalance recommendations, to fleets that hear them."""
        for drop in self.market.recommendations(tick):
            at_risk = [h.id for h in self.held if h.pool == drop.pool and h.deadline is None]
            if at_risk and isinstance(self.fleet, Recommended):
                self.fleet.recommended(at_risk)

    def _ripen(self, tick: int) -> bool:
        if isinstance(self.fleet, SelfReporting):
            return self._hear(self.fleet.working())
        ripe = [h for h in self.held if not h.ready and h.ready_tick <= tick]
        for instance in ripe:
            instance.ready = True
        if ripe:
            self.fleet.ready([h.id for h in ripe])
        return bool(ripe)

    def _hear(self, working: Collection[str]) -> bool:
        changed = [h for h in self.held if h.ready != (h.id in working)]
        for instance in changed:
            instance.ready = not instance.ready
        return bool(changed)

    # What the controller does.

    def _look(self, tick: int) -> bool:
        before = self._orders
        scheduled = tick % max(1, ticks(self.rules.look_seconds)) == 0
        self._unseen = not scheduled or self._by_chance(self.rules.api_failure, "api", tick)
        if self._unseen:
            return False
        self._orders = self.fleet.look()
        if self._orders.released:
            gone = set(self._orders.released)
            self.held = [h for h in self.held if h.id not in gone]
            self._note(tick, "release", len(gone), "")
        return bool(self._orders.released) or self._orders.desired != before.desired

    # What the groups do.

    def _launch_primary(self, tick: int) -> bool:
        desired = self._orders.desired[Side.PRIMARY]
        # A group with capacity rebalancing replaces an instance at its notice, not at its end.
        rebalances = self.shape.capacity_rebalance
        staying = [h for h in self.held if h.side is Side.PRIMARY and (h.deadline is None or not rebalances)]
        missing = desired - len(staying)
        changed = False
        buy = min(
            missing, self.shape.on_demand_of(desired) - sum(h.market is Market.ON_DEMAND for h in staying)
        )
        for _ in range(buy):
            self._launch(tick, self._quietest(), Market.ON_DEMAND, Side.PRIMARY)
            missing, changed = missing - 1, True
        if missing > 0 and tick < self._retry_tick and desired == self._tried:
            return changed
        while missing > 0:
            offers = self._offers(tick)
            pool = self._allocation.pick(offers)
            if pool is None:
                break
            if offers[pool].room < 1:
                self._allocation.refused(pool)
                continue
            self._launch(tick, pool, Market.SPOT, Side.PRIMARY)
            missing, changed = missing - 1, True
        self._tried = desired
        self._retry_tick = tick + ticks(self.rules.retry_seconds) if missing > 0 else 0
        return self._refuse(Side.PRIMARY, SPOT_REFUSAL, missing > 0, tick) or changed

    def _launch_fallback(self, tick: int) -> bool:
        live = sum(h.side is Side.FALLBACK for h in self.held)
        missing = self._orders.desired[Side.FALLBACK] - live
        refused = False
        for attempt in range(missing):
            if self._by_chance(self.rules.on_demand_refusal, f"on-demand {attempt}", tick):
                refused = True
                continue
            successor = self._warm.take(tick)
            if successor is not None:
                heapq.heappush(self._agenda, successor)
            warm = successor is not None
            self._launch(tick, self._quietest(), Market.ON_DEMAND, Side.FALLBACK, warm=warm)
        self._refuse(Side.FALLBACK, ON_DEMAND_REFUSAL, refused, tick)
        return missing > 0

    def _launch(self, tick: int, pool: int, market: Market, side: Side, *, warm: bool = False) -> None:
        instance_id = self.fleet.launched(self.shape.pools[pool], market, side, warm=warm)
        ready_tick = tick + ticks(self.rules.on_demand_cold_start if warm else self.rules.spot_cold_start)
        held = HeldInstance(instance_id, side, market, pool if market is Market.SPOT else None, ready_tick)
        self.held.append(held)
        heapq.heappush(self._agenda, ready_tick)
        self._note(tick, f"launch-{market}", 1, str(self.shape.pools[pool]))

    def _refuse(self, side: Side, message: str, refused: bool, tick: int) -> bool:
        if self._refused[side] == refused:
            return False
        self._refused[side] = refused
        self.fleet.refused(side, message if refused else None)
        if refused:
            self._note(tick, "refusal", 1, str(side))
        return True

    def _offers(self, tick: int) -> list[Offer]:
        pools = self.shape.pools
        holding, in_zone = Counter[int](), Counter[str]()
        calling_back: set[int] = set()
        for held in self.held:
            if held.pool is not None:
                holding[held.pool] += 1
                in_zone[pools[held.pool].zone] += 1
                if held.deadline is not None:
                    calling_back.add(held.pool)
        return [
            Offer(
                pool=index,
                room=max(0, self.market.capacity(index, tick) - holding[index]),
                holding=holding[index],
                in_zone=in_zone[pool.zone],
                calling_back=index in calling_back,
                price=self.market.price(index, tick),
            )
            for index, pool in enumerate(pools)
        ]

    def _by_chance(self, probability: float, what: str, tick: int) -> bool:
        return probability > 0 and draw(self.rules.seed, what, 0, tick).random() < probability

    def _quietest(self) -> int:
        """Return where the next on-demand instance goes: zones in turn, by how many of ours they hold."""
        zones: dict[str, int] = {}
        counted = sum(h.market is Market.ON_DEMAND for h in self.held)
        for index, pool in enumerate(self.shape.pools):
            zones.setdefault(pool.zone, index)
        first: Sequence[int] = tuple(zones.values())
        return first[counted % len(first)]

    # What it comes to.

    def _span(self, tick: int, length: int) -> Span:
        now = self.start + tick * TICK_SECONDS
        prices = [self.market.price(h.pool, tick) for h in self.held if h.pool is not None]
        spot, on_demand = len(prices), len(self.held) - len(prices)
        return Span(
            tick=tick,
            ticks=length,
            ready=sum(self._serves(h, now) for h in self.held),
            spot=spot,
            on_demand=on_demand,
            cost=sum(prices) + on_demand,
            refused=self._refused[Side.PRIMARY],
            standby=self._warm.cost(tick),
        )

    def _serves(self, held: HeldInstance, now: float) -> bool:
        return held.ready and (held.deadline is None or held.deadline - self.rules.drain_seconds > now)

    def _note(self, tick: int, kind: str, count: int, where: str) -> None:
        self.ledger.happened(Happening(tick, kind, count, where))
