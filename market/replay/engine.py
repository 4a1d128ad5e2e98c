"""The replay engine: simulates AWS tick by tick, for the in-memory fleet and for the local cloud.

A tick: the market interrupts, workers become ready, drops are announced, the controller runs, the groups
launch. Ticks without effect are skipped: nothing changed in the tick before, and they contain no capacity
change, announcement, boot, drain, deadline or wake-up of the controller.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterator, Sequence

from lambdas.core.capacity.memory import PRICE_SECONDS
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.fleet import ByZone, Fleet, Orders, Rebalanced, SelfReporting
from market.replay.groups import (
    HEALTH_SECONDS,
    HOOK_SECONDS,
    ON_DEMAND_REFUSAL,
    SPOT_REFUSAL,
    GroupShape,
    HeldInstance,
    on_demand_pools,
)
from market.replay.ledger import Happening, Ledger, Span
from market.replay.primary import PrimaryGroup
from market.replay.warm_pool import WarmPool
from market.rules import NOTICE_SECONDS, TICK_SECONDS, Rules, ticks
from market.supply.spot import SpotMarket, draw


class Replay:
    """One replay of one market against one fleet."""

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
            raise ValueError(f"target must be at least 1, not {target}")
        if len(shape.pools) != len(market.names):
            raise ValueError(
                f"each pool must have one trace, not {len(market.names)} for {len(shape.pools)} pools"
            )
        if shape.capacity_rebalance and not isinstance(fleet, Rebalanced):
            raise ValueError("capacity_rebalance must be false without a fleet that plays it, not true")
        self.market, self.rules, self.fleet, self.shape = market, rules, fleet, shape
        self.ledger = Ledger(target, rules.warm_up_ticks, keep_spans)
        self.start = start
        self.instances: list[HeldInstance] = []
        self._orders = Orders(dict.fromkeys(GroupRole, 0))
        self._refused: dict[GroupRole, bool] = dict.fromkeys(GroupRole, False)
        self._agenda: list[int] = []
        self._primary = PrimaryGroup(shape, market, rules)
        self._warm = WarmPool(rules)
        self._poll_failed = False
        self._tick = 0
        self.played = 0
        # Evaluated once: `isinstance` with a protocol is slow.
        self._reporting = fleet if isinstance(fleet, SelfReporting) else None
        if isinstance(fleet, ByZone):
            fleet.ask(self._sold_in)

    def run(
        self,
        ticks: int | None = None,
        on_tick: Callable[[int, Span], None] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Ledger:
        """Replay from tick 0, at most to the end of the market, or until ``is_over``.

        ``on_tick`` is called for every simulated tick.
        """
        steps = self.steps(ticks)
        while not is_over() and (step := next(steps, None)) is not None:
            if on_tick is not None:
                on_tick(step.tick, step)
        return self.ledger

    def steps(self, ticks: int | None = None) -> Iterator[Span]:
        """Replay from tick 0 and yield after each simulated tick, for replays of several groups in turn."""
        end = self.market.ticks if ticks is None else min(ticks, self.market.ticks)
        tick = 0
        while tick < end:
            changed = self._play(tick)
            following = min(end, tick + 1 if changed else self._next(tick))
            span = self._span(tick, following - tick)
            booting = sum(h.slots for h in self.instances if not h.ready)
            self.ledger.add(span, booting + max(0, span.ready - span.target))
            self.played += 1
            tick = following
            yield span

    def _play(self, tick: int) -> bool:
        self._tick, now = tick, self.start + tick * TICK_SECONDS
        self.fleet.tick(now)
        if quoted := self.market.quotes(tick):
            self.fleet.priced(dict(zip(self.shape.pools, quoted, strict=True)))
            heapq.heappush(self._agenda, tick + ticks(PRICE_SECONDS))  # read by then
        changed = self._take(tick, now)
        changed |= self._ripen(tick)
        changed |= self._announce(tick, now)
        changed |= self._recommend(tick)
        changed |= self._poll(tick)
        changed |= self._rebalance(tick, now)
        changed |= self._launch_primary(tick)
        changed |= self._launch_fallback(tick)
        return changed

    def _next(self, tick: int) -> int:
        """Return the next tick in which something can change."""
        while self._agenda and self._agenda[0] <= tick:
            heapq.heappop(self._agenda)
        moments = [
            self.market.next_change(tick),
            *self._agenda[:1],
            *([tick + 1] if self._poll_failed else []),
        ]
        if self._orders.wake_at is not None:
            moments.append(
                max(tick + 1, math.ceil((self._orders.wake_at - self.start) / TICK_SECONDS - 1e-9))
            )
        if self._primary.retry_tick > tick:
            moments.append(self._primary.retry_tick)
        return min(moments)

    # Market.

    def _take(self, tick: int, now: float) -> bool:
        """Interrupt instances whose deadline has passed, and those beyond a pool's capacity."""
        dying = [h for h in self.instances if h.deadline is not None and h.deadline <= now]
        for pool in range(len(self.market.names)):
            holding = [h for h in self.instances if h.pool == pool and h not in dying]
            excess = len(holding) - self.market.capacity(pool, tick)
            if excess > 0:
                victims = draw(self.rules.seed, "victims", pool, tick).sample(holding, excess)
                self._note(tick, "unannounced", len(victims), self.market.names[pool])
                dying.extend(victims)
        if not dying:
            return False
        interrupted = [h for h in dying if not h.rebalanced]
        for pool in sorted({h.pool for h in interrupted if h.pool is not None}):
            self._note(
                tick, "interruption", sum(h.pool == pool for h in interrupted), self.market.names[pool]
            )
        heapq.heappush(self._agenda, self._primary.lost(interrupted, tick))
        self.instances = [h for h in self.instances if h not in dying]
        if interrupted:
            self.fleet.died([h.id for h in interrupted])
        if len(interrupted) < len(dying) and isinstance(self.fleet, Rebalanced):
            self.fleet.ended([h.id for h in dying if h.rebalanced])
        return True

    def _announce(self, tick: int, now: float) -> bool:
        """Announce drops: a notice always gives two minutes, however late it arrives."""
        interrupted: list[HeldInstance] = []
        for drop in self.market.announcements(tick):
            holding = [h for h in self.instances if h.pool == drop.pool]
            safe = [h for h in holding if h.deadline is None]
            excess = min(len(safe), len(holding) - drop.capacity - (len(holding) - len(safe)))
            if excess > 0:
                chosen = draw(self.rules.seed, "notices", drop.pool, tick).sample(safe, excess)
                for instance in chosen:
                    instance.deadline = self.start + drop.tick * TICK_SECONDS
                self._warn(tick, (drop.tick - tick) * TICK_SECONDS)
                interrupted.extend(chosen)
        if not interrupted:
            return False
        self._note(tick, "notice", len(interrupted), "")
        self.fleet.noticed([h.id for h in interrupted], now + NOTICE_SECONDS)
        return True

    def _recommend(self, tick: int) -> bool:
        """Send rebalance recommendations for the instances of a pool at elevated risk."""
        pools = self.market.recommendations(tick)
        risky = [h for h in self.instances if h.pool in pools and h.deadline is None and not h.at_risk]
        for instance in risky:
            instance.at_risk = True
        if risky:
            self._note(tick, "recommendation", len(risky), "")
            self.fleet.recommended([h.id for h in risky])
        return bool(risky)

    def _rebalance(self, tick: int, now: float) -> bool:
        """Terminate, with the termination hook, instances with a healthy successor, ready or not."""
        ending = self._primary.ending(self.instances, self._orders.desired[GroupRole.PRIMARY], tick)
        for instance in ending:
            instance.rebalanced, instance.deadline = True, now + HOOK_SECONDS
        if ending and isinstance(self.fleet, Rebalanced):
            self._note(tick, "rebalance", len(ending), "")
            self._warn(tick, HOOK_SECONDS)
            self.fleet.ending([h.id for h in ending], now + HOOK_SECONDS)
        return bool(ending)

    def _warn(self, tick: int, seconds: float) -> None:
        """Simulate the drain and end ticks of instances that end in ``seconds``."""
        heapq.heappush(self._agenda, tick + ticks(seconds))
        heapq.heappush(self._agenda, tick + max(0, ticks(seconds - self.rules.drain_seconds)))

    def _ripen(self, tick: int) -> bool:
        if self._reporting is not None:
            return self._deliver_heartbeats(tick, self._reporting.working())
        ripe = [h for h in self.instances if not h.ready and h.ready_tick <= tick]
        for instance in ripe:
            instance.ready = True
        if ripe:
            self.fleet.ready([h.id for h in ripe])
        self._note_ready(tick, ripe)
        return bool(ripe)

    def _deliver_heartbeats(self, tick: int, working: Collection[str]) -> bool:
        changed = [h for h in self.instances if h.ready != (h.id in working)]
        for instance in changed:
            instance.ready = not instance.ready
        self._note_ready(tick, [h for h in changed if h.ready])
        return bool(changed)

    def _note_ready(self, tick: int, instances: Sequence[HeldInstance]) -> None:
        for option in PurchaseOption:
            if count := sum(h.market is option for h in instances):
                self._note(tick, f"ready-{option}", count, "")

    # Controller.

    def _poll(self, tick: int) -> bool:
        before = self._orders
        scheduled = tick % max(1, ticks(self.rules.look_seconds)) == 0
        self._poll_failed = not scheduled or self._by_chance(self.rules.api_failure, "api", tick)
        if self._poll_failed:
            return False
        self._orders = self.fleet.reconcile()
        if self._orders.released:
            terminated = set(self._orders.released)
            booting = sum(
                h.id in terminated and h.side is GroupRole.PRIMARY and not (h.ready or h.at_risk)
                for h in self.instances
            )
            self.instances = [h for h in self.instances if h.id not in terminated]
            self._note(tick, "release", len(terminated), "")
            if booting:
                self._note(tick, "release-booting", booting, "")
        for instance_id, pool, option in self._orders.placed:
            role = GroupRole.PRIMARY if option is PurchaseOption.SPOT else GroupRole.FALLBACK
            self._hold(tick, instance_id, self.shape.pools.index(pool), option, role)
        changed = bool(self._orders.released or self._orders.placed)
        return changed or self._orders.desired != before.desired

    # Groups.

    def _launch_primary(self, tick: int) -> bool:
        launched = False
        for pool, market in self._primary.buys(self.instances, self._orders.desired[GroupRole.PRIMARY], tick):
            self._launch(tick, pool, market, GroupRole.PRIMARY)
            launched = True
        if self._primary.tried_again(tick) and self._refused[GroupRole.PRIMARY]:
            self.fleet.refused(GroupRole.PRIMARY, SPOT_REFUSAL)
        return self._refuse(GroupRole.PRIMARY, SPOT_REFUSAL, self._primary.short, tick) or launched

    def _launch_fallback(self, tick: int) -> bool:
        live = sum(h.slots for h in self.instances if h.side is GroupRole.FALLBACK)
        heapq.heappush(self._agenda, self._warm.follow(live, tick))
        missing = self._orders.desired[GroupRole.FALLBACK] - live
        refused = False
        for attempt, pool in enumerate(on_demand_pools(self.shape, self.instances, missing)):
            if self._has_no_on_demand(f"on-demand {attempt}", tick):
                refused = True
                continue
            warm = self._warm.take(tick)
            if warm and self._by_chance(self.rules.warm_refusal, f"warm {attempt}", tick):
                # A warm instance that cannot be started is lost; the group launches a new one.
                self._note(tick, "warm-refusal", 1, "")
                self.fleet.warm_lost()
                warm = False
            self._launch(tick, pool, PurchaseOption.ON_DEMAND, GroupRole.FALLBACK, warm=warm)
        if refused and self._refused[GroupRole.FALLBACK]:
            self.fleet.refused(GroupRole.FALLBACK, ON_DEMAND_REFUSAL)
        self._refuse(GroupRole.FALLBACK, ON_DEMAND_REFUSAL, refused, tick)
        return missing > 0

    def _launch(
        self, tick: int, pool: int, market: PurchaseOption, side: GroupRole, *, warm: bool = False
    ) -> None:
        instance_id = self.fleet.launched(self.shape.pools[pool], market, side, warm=warm)
        self._hold(tick, instance_id, pool, market, side, warm=warm)

    def _hold(
        self,
        tick: int,
        instance_id: str,
        pool: int,
        market: PurchaseOption,
        side: GroupRole,
        *,
        warm: bool = False,
    ) -> None:
        """Add a launched instance."""
        ready_tick = tick + ticks(self._boot(warm, tick))
        instance = HeldInstance(
            id=instance_id,
            side=side,
            market=market,
            pool=pool if market is PurchaseOption.SPOT else None,
            healthy_tick=tick + ticks(HEALTH_SECONDS),
            ready_tick=ready_tick,
            slots=self.shape.slots_of(pool),
        )
        self.instances.append(instance)
        heapq.heappush(self._agenda, instance.healthy_tick)
        heapq.heappush(self._agenda, ready_tick)
        self._note(tick, f"launch-{market}", 1, str(self.shape.pools[pool]))

    def _sold_in(self, zone: str, option: PurchaseOption) -> Pool | None:
        """Return a zone's pool for a launch, None if the launch fails."""
        if option is PurchaseOption.SPOT:
            return self._primary.sold_in(zone, self.instances, self._tick)
        pool = next((pool for pool in self.shape.pools if pool.zone == zone), None)
        return None if self._has_no_on_demand(f"on-demand in {zone}", self._tick) else pool

    def _has_no_on_demand(self, attempt: str, tick: int) -> bool:
        refusal = self.rules.on_demand_refusal
        return self.market.on_demand_is_dry(tick) or self._by_chance(refusal, attempt, tick)

    def _boot(self, warm: bool, tick: int) -> float:
        """Return the seconds until the next launch is ready."""
        boot = self.rules.on_demand_cold_start if warm else self.rules.spot_cold_start
        if self.rules.boot_spread == 0:
            return boot
        chance = draw(self.rules.seed, f"boot {len(self.instances)}", 0, tick)
        return boot * chance.lognormvariate(0.0, self.rules.boot_spread)

    def _refuse(self, side: GroupRole, message: str, refused: bool, tick: int) -> bool:
        if self._refused[side] == refused:
            return False
        self._refused[side] = refused
        self.fleet.refused(side, message if refused else None)
        if refused:
            self._note(tick, "refusal", 1, str(side))
        return True

    def _by_chance(self, probability: float, purpose: str, tick: int) -> bool:
        return probability > 0 and draw(self.rules.seed, purpose, 0, tick).random() < probability

    # Accounting.

    def _span(self, tick: int, length: int) -> Span:
        now = self.start + tick * TICK_SECONDS
        bought = [h for h in self.instances if h.pool is not None]
        spot = sum(h.slots for h in bought)
        on_demand = sum(h.slots for h in self.instances) - spot
        paid = sum(self.market.price(h.pool, tick) * h.slots for h in bought if h.pool is not None)
        return Span(
            tick=tick,
            ticks=length,
            target=self.ledger.target if self._orders.target is None else self._orders.target,
            ready=sum(h.slots for h in self.instances if self._serves(h, now)),
            spot=spot,
            on_demand=on_demand,
            cost=paid + on_demand,
            refused=self._refused[GroupRole.PRIMARY],
            standby=self._warm.cost(tick),
        )

    def _serves(self, instance: HeldInstance, now: float) -> bool:
        return instance.ready and (
            instance.deadline is None or instance.deadline - self.rules.drain_seconds > now
        )

    def _note(self, tick: int, kind: str, count: int, where: str) -> None:
        self.ledger.happened(Happening(tick, kind, count, where))
