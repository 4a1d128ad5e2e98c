"""The policy ``expected-cost``: buy On-Demand capacity if it costs less than the shortage that it prevents.

Units: costs are in On-Demand minutes (the price of one On-Demand worker for a minute), prices are relative to
On-Demand, times are seconds. The terms of the formulas:

=======================  ==========================================================================
``shortage_cost``        Cost of one worker-minute of shortage, in On-Demand minutes.
``COVER_PRICE``          Cost of one minute of cover, in On-Demand minutes.
``spot_price``           Price of Spot relative to On-Demand.
``boot``                 Learned time from launch to ready, by purchase option.
``hazard``               Losses of a pool per second: factor × ``HAZARD_SCALE`` ÷
                         (``HAZARD_OFFSET_SECONDS`` + age of the pool's run).
``outage_seconds``       Mean time for which a lost slot is missing, with On-Demand as its successor.
``missing_share(n)``     Share of time in which at least ``n`` slots are missing without cover.
=======================  ==========================================================================

One more slot pays off while the shortage that it prevents costs more than the slot itself::

    shortage_cost × missing_share(n) > COVER_PRICE

For a single pool, ``missing_share`` is ``hazard × outage_seconds``. Solved for the age of the pool's run,
this is the *cover age*, up to which the pool needs cover::

    cover age = factor × HAZARD_SCALE × outage_seconds × shortage_cost ÷ COVER_PRICE − HAZARD_OFFSET_SECONDS
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import ClassVar, Final

from contracts.group import policies
from contracts.group.warm_pool import on_demand_share
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.history import (
    DEFAULT_AGE_SECONDS,
    HAZARD_OFFSET_SECONDS,
    HAZARD_SCALE,
    LAUNCH_TIMEOUT_SECONDS,
)
from lambdas.core.capacity.plan import RETRY_SECONDS, Plan
from lambdas.core.capacity.policies.retries import PROVEN_SECONDS, current_try, not_trying_until
from lambdas.core.capacity.policies.risk import Risk
from lambdas.core.model import Instance, PurchaseOption, slots

COVER_PRICE: Final = 1.5
"""Cost of a minute of cover, in On-Demand minutes. More than 1, because cover boots before it helps, runs on
until the next decision, and does not help against losses in between. Measured in replays of the public
traces: with 1 and a ``shortage_cost`` of 100, each prevented worker-minute cost 150 to 190 On-Demand
minutes."""
LEAD_MARGIN_SECONDS: Final = 10.0
"""Time by which a successor is requested earlier than the slowest of the newest requests demands."""
_MIN_REPLAN_SECONDS: Final = 60.0
"""Minimum time between decisions that only the age of pools triggers."""
_MIN_SPOT_PRICE: Final = 0.01


@dataclass(frozen=True, slots=True)
class _PrimaryPlan:
    """Desired capacity of the primary group in slots, when it may change, and why it holds no Spot."""

    slots: int
    replan_times: tuple[float, ...] = ()
    note: str = ""
    without_spot_seconds: float = RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Hold the capacity with the lowest expected cost of instances and shortage.

    The plan consists of:

    - *Successors*: On-Demand capacity for slots that are missing, or drain soon after a notice, unless
      booting Spot capacity is ready almost as early.
    - *Cover*: On-Demand capacity in advance of losses: for young pools, for pools that are failing, and for a
      large number of pools that fail independently.
    - *Spares*: additional Spot capacity in place of cover, if pools need cover only briefly.
    - *Scouts*: if pools need cover for long after their capacity returns, one Spot Instance tests them, and
      only if the savings on the others will pay for it.

    If Spot costs as much as On-Demand, the policy launches none. If what it has learned says that Spot does
    not pay off, it holds the Spot Instances that there are, and without any it tries one at least once in
    ``RETRY_SECONDS`` (see ``retries``); once that has served long enough, the group returns to Spot.

    Attributes:
        shortage_cost: Cost of one worker-minute of shortage, in On-Demand minutes.
    """

    shortage_cost: float = policies.PARAMETERS[policies.EXPECTED_COST][policies.SHORTAGE_COST].default
    name: ClassVar[str] = policies.EXPECTED_COST

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a negative or infinite cost."""
        if not (math.isfinite(self.shortage_cost) and self.shortage_cost >= 0):
            raise ValueError(f"shortageCost must be a number ≥ 0, not {self.shortage_cost}")

    def plan(self, state: GroupState) -> Plan:
        """Return the capacity to hold now."""
        now, target, stable = state.now, state.group.target, state.stable_primary
        risk = Risk.from_state(state)
        deadlines = state.memory.termination_deadlines
        uninterrupted = [i for i in state.primary if i.id not in deadlines]
        uninterrupted_slots = slots(uninterrupted)
        primary = self._plan_primary(state, risk, uninterrupted_slots)
        replan_times = list(primary.replan_times)
        surplus = uninterrupted_slots - primary.slots
        ready_times = sorted(self._ready_times(state, uninterrupted, surplus))
        is_job = state.group.config.break_before_make
        cover = 0 if is_job else self._worthwhile_slots(risk.missing_share, target)
        if cover:
            # The last slot of cover pays off until the hazard has fallen by this ratio.
            ratio = self.shortage_cost * risk.missing_share(cover) / COVER_PRICE
            replan_times.append(max(risk.unchanged_until(ratio, now), now + _MIN_REPLAN_SECONDS))
        missing_since = _missing_since(state, stable)
        lead = _successor_lead(state)
        later = [since - lead for since in missing_since if since - lead > now]
        missing_since = missing_since[: len(missing_since) - len(later)]
        replan_times += later
        on_demand = self._successors(state, missing_since, ready_times, launching=-surplus)
        on_demand += cover - max(0, stable - target)
        interrupted = slots(state.primary) - uninterrupted_slots
        future = (time for time in chain(replan_times, ready_times) if now < time < math.inf)
        return Plan(
            on_demand=min(target, max(0, on_demand)),
            reason=f"target {target}, {stable} primary stable, {interrupted} interrupted, {cover} standby"
            + (f", {primary.note}" if primary.note else ""),
            primary=primary.slots,
            next_run_at=min(future, default=None),
            without_spot_seconds=primary.without_spot_seconds,
        )

    def _worthwhile_slots(self, missing_share: Callable[[int], float], maximum: int) -> int:
        """Return how many additional slots pay off, each judged by the shortage that it alone prevents."""
        return bisect_left(
            range(1, maximum + 1),
            True,
            key=lambda count: self.shortage_cost * missing_share(count) <= COVER_PRICE,
        )

    def _successors(
        self, state: GroupState, missing_since: Sequence[float], ready_times: Sequence[float], launching: int
    ) -> int:
        """Return the On-Demand slots to hold for slots of the target that are missing or will be.

        A successor pays off if the shortage that it prevents, the time by which it is ready before the Spot
        slot, costs more than the On-Demand capacity until that slot is ready, at most a Spot boot::

            shortage_cost × seconds saved > Spot boot

        Args:
            state: State of the group.
            missing_since: For each missing slot, the time from which it is missing.
            ready_times: For each booting Spot slot, the time at which it is ready.
            launching: Slots that the primary group is still to launch.
        """
        if self.shortage_cost <= 1:
            return 0
        now, memory = state.now, state.memory
        on_demand_boot = memory.boot_seconds(PurchaseOption.ON_DEMAND)
        spot_boot = memory.boot_seconds(PurchaseOption.SPOT)
        seconds_saved = []
        for since, ready_at in zip(missing_since, ready_times, strict=False):
            # Relative to the launch of the Spot slot: the result must not change while that slot boots.
            launched_at = ready_at - spot_boot
            gap_start = since if since > now else launched_at
            seconds_saved.append(ready_at - max(launched_at + on_demand_boot, gap_start))
        # A launch may fail, assumed for one in two, and is noticed only after the launch timeout.
        is_unavailable = memory.history.capacity_unavailable
        seconds_saved += [LAUNCH_TIMEOUT_SECONDS / 2] * (0 if is_unavailable else launching)
        # No Spot capacity is on its way for the remaining slots.
        seconds_saved += [math.inf] * (len(missing_since) - len(seconds_saved))
        seconds_saved = seconds_saved[: len(missing_since)]
        return sum(self.shortage_cost * seconds > spot_boot for seconds in seconds_saved)

    def _ready_times(
        self, state: GroupState, uninterrupted: Sequence[Instance], surplus: int
    ) -> Iterator[float]:
        """Yield the time at which each booting primary slot is expected to be ready.

        Excludes slots that are about to be terminated as surplus, and overdue ones, which may never be ready.
        """
        now, memory = state.now, state.memory
        terminating = {i.id for i in state.scale_in_candidates(uninterrupted, surplus)}
        for instance in uninterrupted:
            if not state.is_up(instance) and instance.id not in terminating:
                ready_at = instance.launched_at + memory.boot_seconds(instance.purchase_option)
                if ready_at > now:
                    yield from repeat(ready_at, instance.slots)

    def _plan_primary(self, state: GroupState, risk: Risk, uninterrupted: int) -> _PrimaryPlan:
        """Return the primary group's plan; ``uninterrupted`` is the number of its slots without a notice."""
        group, price = state.group, state.spot_price
        spot_boot = state.memory.boot_seconds(PurchaseOption.SPOT)
        on_demand_boot = state.memory.boot_seconds(PurchaseOption.ON_DEMAND)
        # Each loss costs a boot of the On-Demand successor and, later, one of the Spot instance.
        typical_hazard = HAZARD_SCALE / (HAZARD_OFFSET_SECONDS + DEFAULT_AGE_SECONDS)
        loss_cost = typical_hazard * (on_demand_boot + price * spot_boot)
        if self.shortage_cost > 1 and 1 - price <= loss_cost:
            if price >= 1:
                note, current = "Spot costs no less than On-Demand", min(group.target, uninterrupted)
                return _PrimaryPlan(current, note=note, without_spot_seconds=math.inf)
            # From this age + offset on, a pool with factor 1 costs less by its losses than it saves.
            span = HAZARD_SCALE * (on_demand_boot + price * spot_boot) / (1 - price)
            return _hold_or_try(state, risk, uninterrupted, span)
        # Cover age + offset of a pool with factor 1, see the module's docstring.
        cover_span = HAZARD_SCALE * risk.outage_seconds * self.shortage_cost / COVER_PRICE
        if cover_span * risk.default_factor - HAZARD_OFFSET_SECONDS <= spot_boot / max(
            price, _MIN_SPOT_PRICE
        ):
            # Pools need cover only briefly: hold the target, and spares that pay off.
            largest_pool = max((pool.slots for pool in risk.pools), default=0)
            maximum = max(0, group.maximum - group.target - largest_pool)
            if group.config.break_before_make:
                return _PrimaryPlan(group.target)
            return _PrimaryPlan(group.target + self._worthwhile_slots(risk.missing_share_with_spare, maximum))
        # With a hazard of about 1 ÷ (offset + age), a share offset ÷ cover_span of the runs reaches the cover
        # age and then lasts for about another cover_span. So a slot saves offset × (1 − price) on average,
        # and a scout costs price × offset × log(cover_span ÷ offset) until then.
        scout_cost = price * math.log(cover_span * risk.default_factor / HAZARD_OFFSET_SECONDS)
        if (1 - price) * group.target <= scout_cost:
            return _hold_or_try(state, risk, uninterrupted, cover_span)
        cover_ends = _cover_ends(state, risk, cover_span)
        if not cover_ends and not state.memory.history.capacity_unavailable:
            return _PrimaryPlan(group.target)
        scouts = 0 if cover_ends else 1
        return _PrimaryPlan(min(group.target, uninterrupted + scouts), cover_ends)


def _cover_ends(state: GroupState, risk: Risk, span: float) -> tuple[float, ...]:
    """Return when each pool in use that is still too young is old enough; ``span`` is for factor 1."""
    ages = (min(span * pool.factor - HAZARD_OFFSET_SECONDS, PROVEN_SECONDS) for pool in risk.pools)
    waits = (age - pool.age for age, pool in zip(ages, risk.pools, strict=True))
    return tuple(state.now + wait for wait in waits if wait > 0)


def _hold_or_try(state: GroupState, risk: Risk, uninterrupted: int, span: float) -> _PrimaryPlan:
    """Return the plan of a group for which Spot does not pay off by what is known of its pools.

    It holds what there is. Once all pools in use are old enough, it returns to Spot; without a Spot slot it
    requests one from time to time.
    """
    target = state.group.target
    current = min(target, uninterrupted)
    cover_ends = _cover_ends(state, risk, span)
    if risk.pools and not cover_ends and not state.memory.history.capacity_unavailable:
        return _PrimaryPlan(target)
    group, deadlines = state.group, state.memory.termination_deadlines
    mix = (group.config.base, group.config.spot_percentage)
    # Of a mixed group the smallest capacity with a Spot slot.
    trial = next((c for c in range(current + 1, target + 1) if on_demand_share(c, *mix) < c), current)
    has_spot = any(i.purchase_option is PurchaseOption.SPOT and i.id not in deadlines for i in state.primary)
    if has_spot or trial == current:
        return _PrimaryPlan(current, cover_ends)
    is_trying, changes_at = current_try(group.name, state.now)
    if is_trying:
        return _PrimaryPlan(trial, (*cover_ends, changes_at))
    return _PrimaryPlan(current, (*cover_ends, changes_at), not_trying_until(changes_at))


def _successor_lead(state: GroupState) -> float:
    """Return how many seconds before an instance drains its successor is requested; infinite: at the notice.

    As late as the newest requests allow. At the notice while little is known of them; below a maximum of
    twice the target, because Spot would take the room; for replacements by request, whose deadline moves on.
    """
    group = state.group
    has_room = not group.config.break_before_make and group.maximum >= 2 * group.target
    if state.replacements or not has_room:
        return math.inf
    return state.memory.fallback_lead() + LEAD_MARGIN_SECONDS


def _missing_since(state: GroupState, stable: int) -> list[float]:
    """Return the time from which each slot of the target without a stable instance is missing.

    The slot of an interrupted instance is missing once that instance starts to drain.
    """
    deadlines, drain = state.memory.termination_deadlines, state.group.config.drain_seconds
    drain_times = sorted(
        deadline - drain
        for instance in state.primary
        if (deadline := deadlines.get(instance.id)) is not None and state.is_ready(instance)
        for _ in range(instance.slots)
    )
    missing = max(0, state.group.target - stable)
    missing_now = max(0, missing - len(drain_times))
    return [state.now] * missing_now + drain_times[max(0, len(drain_times) - missing) :]
