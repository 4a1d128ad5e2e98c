"""Spot is tried again in bounded time, the reason says when, and On-Demand alone raises an alarm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.control import Control, Mode
from lambdas.core.capacity.alarms import ON_DEMAND_ONLY
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.history import History, PoolRecord, update_history
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS, Memory, pending_capacity, update_memory
from lambdas.core.capacity.plan import RETRY_SECONDS
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.capacity.policies.retries import PROVEN_SECONDS, TRY_SECONDS, current_try
from lambdas.core.capacity.policies.risk import _poisson_tail
from lambdas.core.model import Alarm, Group, GroupRole, Observation, PurchaseOption
from tests.core.build import NOW, POOL, desired, observe, on_demand, spot
from tests.core.build import group as make_group


def job(**changes: Any) -> Group:
    return make_group(target=1, maximum=2, break_before_make=True, **changes)


JOB = job()
BELIEF = Memory(
    boots={PurchaseOption.ON_DEMAND: (236.0,)},
    booted=frozenset({"o1"}),
    history=History(
        {str(POOL): PoolRecord(losses=8.0, expected=2.0, lost_at=NOW - 7200)}, losses=8.0, unannounced=4.0
    ),
)
"""After a few losses Spot does not pay off for one slot."""
POLICY = ExpectedCost(100.0)


def trying_at(group: Group) -> float:
    """Return the start of a try after ``NOW``."""
    is_trying, changes_at = current_try(group.name, NOW)
    return changes_at + (RETRY_SECONDS - TRY_SECONDS if is_trying else 0.0)


def seen(*instances: object, group: Group = JOB, primary: int = 0, price: float = 0.3) -> Observation:
    return observe(*instances, group=group, primary_desired=primary, spot_prices={str(POOL): price})


def at(time: float, state: Observation, memory: Memory = BELIEF) -> Decision:
    return decide(state, POLICY, memory, time)


@given(st.text(max_size=8), st.floats(0, 2e9))
def test_a_try_comes_within_the_hour_and_lasts_two_passes(name: str, now: float) -> None:
    is_trying, changes_at = current_try(name, now)
    assert now < changes_at <= now + RETRY_SECONDS
    assert current_try(name, changes_at)[0] is not is_trying
    assert TRY_SECONDS >= 120


def test_groups_do_not_try_at_the_same_time() -> None:
    assert len({current_try(f"g{n}", NOW)[1] for n in range(20)}) > 10


def test_a_job_on_on_demand_tries_spot_again_and_says_when() -> None:
    start = trying_at(JOB)
    before = at(start - 60, seen(on_demand("o1")))
    assert "not trying Spot until " in before.reason
    assert desired(before.actions, GroupRole.PRIMARY) is None
    assert before.next_run_at == start
    trial = at(start, seen(on_demand("o1")))
    assert desired(trial.actions, GroupRole.PRIMARY) == 1
    assert trial.next_run_at is not None
    assert trial.next_run_at <= start + TRY_SECONDS
    # Without a launch the request is withdrawn, with one it is kept.
    assert desired(at(start + TRY_SECONDS, seen(on_demand("o1"), primary=1)).actions, GroupRole.PRIMARY) == 0
    launched = replace(spot("s1", ready=False), launched_at=start + 10)
    kept = at(start + TRY_SECONDS, seen(on_demand("o1"), launched, primary=1))
    assert desired(kept.actions, GroupRole.PRIMARY) is None


def test_a_try_of_a_mixed_group_asks_for_a_capacity_with_spot() -> None:
    group = make_group(name="mixed", target=6, maximum=12, base=2, spot_percentage=50)
    memory = replace(BELIEF, history=replace(BELIEF.history, losses=1e6, unannounced=1e6))
    held = [on_demand(f"p{n}", side=GroupRole.PRIMARY) for n in range(2)]
    state = seen(*held, *(on_demand(f"o{n}") for n in range(4)), group=group, primary=2, price=0.99)
    assert desired(at(trying_at(group), state, memory).actions, GroupRole.PRIMARY) == 4


def test_no_spot_is_tried_while_it_costs_as_much_as_on_demand() -> None:
    decision = at(trying_at(JOB), seen(on_demand("o1"), price=1.0))
    assert desired(decision.actions, GroupRole.PRIMARY) is None
    assert "Spot costs no less than On-Demand" in decision.reason


@pytest.mark.parametrize(("age", "target"), [(PROVEN_SECONDS - 1, None), (PROVEN_SECONDS, 4)])
def test_a_group_returns_to_spot_once_its_pool_has_served_long_enough(age: float, target: int | None) -> None:
    """Whatever the pool's record."""
    group = make_group()
    pools = {str(POOL): PoolRecord(since=NOW - age, losses=1e9)}
    history = History(pools, {"s1": str(POOL)}, losses=1e9, unannounced=1e9)
    state = seen(
        spot("s1", age=age), *(on_demand(f"o{n}") for n in range(3)), group=group, primary=1, price=0.9
    )
    decision = at(NOW, state, replace(BELIEF, history=history))
    assert desired(decision.actions, GroupRole.PRIMARY) == target


def test_times_in_the_future_are_read_as_now() -> None:
    future = History({str(POOL): PoolRecord(since=NOW + 1e6, lost_at=NOW + 1e6)}, {"s1": str(POOL)})
    read = update_history(future, observe(spot("s1"), primary_desired=1), {}, {}, NOW)
    assert read.pools[str(POOL)] == PoolRecord(since=NOW, lost_at=NOW)
    waiting = replace(future, waiting_since=NOW + 1e6)
    assert update_history(waiting, observe(spot("s1")), {}, {}, NOW).waiting_since == NOW
    memory = Memory(termination_deadlines={"s1": NOW + 1e6})
    assert update_memory(memory, observe(spot("s1")), NOW).termination_deadlines == {"s1": NOW + 3600}
    asked = Memory(requested_capacity={GroupRole.PRIMARY: (9, NOW + 1e6)})
    assert pending_capacity(asked, observe(), NOW) == {}


def test_boot_times_are_bounded() -> None:
    memory = Memory(boots={PurchaseOption.SPOT: (1e9,)})
    assert memory.boot_seconds(PurchaseOption.SPOT) == MAX_BOOT_SECONDS


def test_a_huge_mean_needs_no_long_sum() -> None:
    assert _poisson_tail(1e12, 5) == 1.0
    assert _poisson_tail(112.0, 5) == pytest.approx(_poisson_tail(110.0, 5), abs=1e-8)


def on_demand_only(decision: Decision) -> list[str]:
    return [a.reason for a in decision.actions if isinstance(a, Alarm) and a.kind == ON_DEMAND_ONLY]


def test_on_demand_alone_raises_an_alarm_when_it_lasts_longer_than_expected() -> None:
    first = at(NOW, seen(on_demand("o1")))
    assert first.memory.without_spot_since == NOW
    due = NOW + RETRY_SECONDS + MAX_BOOT_SECONDS
    assert on_demand_only(at(due - 1, seen(on_demand("o1")), first.memory)) == []
    late = at(due, seen(on_demand("o1")), first.memory)
    [reason] = on_demand_only(late)
    assert reason.startswith("no Spot Instance for 90 minutes, at most 90 were expected: target 1")
    assert on_demand_only(at(due + 60, seen(on_demand("o1")), late.memory)) == []
    back = at(due + 120, seen(on_demand("o1"), spot("s1"), primary=1), late.memory)
    assert back.memory.without_spot_since is None
    assert ON_DEMAND_ONLY not in back.memory.active_alarms


@pytest.mark.parametrize(
    ("changes", "price"),
    [
        ({"reserved": 1}, 0.3),
        ({"spot_percentage": 0}, 0.3),
        ({"base": 1}, 0.3),
        ({"control": Control(Mode.MANUAL, 1)}, 0.3),
        ({}, 1.0),
    ],
)
def test_a_group_that_is_to_run_on_demand_alone_raises_no_alarm(changes: dict, price: float) -> None:
    memory = replace(BELIEF, without_spot_since=NOW - 1e6)
    state = seen(on_demand("o1"), group=job(**changes), price=price)
    assert on_demand_only(at(NOW, state, memory)) == []
