"""What the policies promise beyond the safety rules: successors, exact wake-ups, cover, spares, scouts."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contracts import codec
from contracts.group import policies
from contracts.stored import camel_case
from infra.schema.jobs.training import SHORTAGE_COST as JOB_SHORTAGE_COST
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.history import (
    CORRELATION_SECONDS,
    DEFAULT_AGE_SECONDS,
    LAUNCH_TIMEOUT_SECONDS,
    History,
    PoolRecord,
    expected_losses,
)
from lambdas.core.capacity.memory import TERMINATION_SECONDS, Memory, dump, parse, update_memory
from lambdas.core.capacity.policies import DEFAULT, NAMES, build
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.model import GroupRole, Observation, PurchaseOption
from tests.core.build import NOW, POOL, desired, observe, on_demand, refusal, released, spot, taken
from tests.core.build import group as make_group
from tests.core.states import observations

LEADS = (45.0, 30.0, 30.0, 30.0, 30.0)
BOOTS = {PurchaseOption.ON_DEMAND: (60.0,), PurchaseOption.SPOT: (180.0,)}
LEARNED = Memory(boots=BOOTS)
ROOMY = make_group(maximum=12)
NO_ROOM_TO_GROW = "UnfulfillableCapacity - Unable to fulfill capacity"

costs = st.sampled_from([0.0, 1.2, 5.0, 100.0, 1000.0])


def fleet(*deadlines: float | None) -> list:
    return [spot(f"s{n}", deadline=at) for n, at in enumerate(deadlines)]


@given(st.lists(st.none() | st.floats(1, 120), min_size=4, max_size=4), st.sampled_from([0.0, 45.0]))
def test_on_demand_starts_at_the_notice(ahead: list[float | None], drain: float) -> None:
    interrupted = fleet(*(None if a is None else NOW + a for a in ahead))
    state = observe(*interrupted, group=make_group(maximum=12, drain_seconds=drain))
    decision = decide(state, ExpectedCost(5.0), LEARNED, NOW)
    assert (desired(decision.actions, GroupRole.FALLBACK) or 0) == sum(a is not None for a in ahead)


@pytest.mark.parametrize(
    ("boot", "cost", "on_demand_slots"),
    [
        *((boot, JOB_SHORTAGE_COST, 0) for boot in (60.0, 180.0, 300.0)),
        *((180.0, 3.0, 0), (180.0, 3.01, 1), (300.0, 4.0, 0), (300.0, 4.01, 1)),
    ],
)
def test_from_what_cost_a_job_starts_on_demand_at_the_notice(
    boot: float, cost: float, on_demand_slots: int
) -> None:
    """README.md has these figures; three minutes count before a boot is measured."""
    job = make_group(target=1, maximum=2, drain_seconds=20, break_before_make=True)
    memory = Memory(boots=dict.fromkeys(PurchaseOption, (boot,)))
    decision = decide(observe(*fleet(NOW + 110), group=job), ExpectedCost(cost), memory, NOW)
    assert (desired(decision.actions, GroupRole.FALLBACK) or 0) == on_demand_slots


@given(observations(), st.sampled_from(NAMES), costs, st.floats(0, 1), st.booleans())
def test_the_plan_does_not_change_before_its_next_run(
    state: Observation, name: str, cost: float, share: float, learned: bool
) -> None:
    policy = ExpectedCost(cost) if name == ExpectedCost.name else build(name)
    memory = replace(LEARNED, fallback_leads=LEADS) if learned else Memory()
    first = decide(state, policy, memory, NOW)
    # A release is believed for so long.
    until = min(first.next_run_at or NOW + 600, NOW + TERMINATION_SECONDS)
    later = NOW + share * (until - NOW)
    assume(later < until - 1e-6)
    again = decide(taken(state, first), policy, parse(dump(first.memory)), later)
    assert again.actions == ()


def young(since: float) -> Memory:
    history = History(
        pools={str(POOL): PoolRecord(since=since, start_age=0.0)},
        pool_by_instance={f"s{n}": str(POOL) for n in range(4)},
    )
    return Memory(boots=BOOTS, history=history)


def test_cover_is_held_for_spot_in_a_young_pool_until_the_pool_is_old_enough() -> None:
    policy = ExpectedCost(500.0)
    state = observe(*fleet(None, None, None, None), *(on_demand(f"o{n}") for n in range(4)), group=ROOMY)
    first = decide(state, policy, young(NOW - 300), NOW)
    assert released(first.actions) == ()
    # 0.85 × 6 s × 500 ÷ 1.5 = 1,700 s after its birth, less 20 minutes, a loss costs less than cover.
    assert first.next_run_at == pytest.approx(NOW - 300 + 1700 - 1200)
    assert decide(state, policy, first.memory, first.next_run_at - 0.01).actions == ()
    assert len(released(decide(state, policy, first.memory, first.next_run_at + 0.01).actions)) == 4
    # It is bought as well as kept; a low shortage cost has none.
    bare = observe(*fleet(None, None, None, None), group=ROOMY)
    assert desired(decide(bare, policy, young(NOW - 300), NOW).actions, GroupRole.FALLBACK) == 4
    assert len(released(decide(state, ExpectedCost(10.0), young(NOW - 300), NOW).actions)) == 4


def correlated(losses: float, seconds: float) -> Memory:
    record = PoolRecord(since=NOW - 60, start_age=50_000.0, lost_at=NOW - 60)
    living = {f"s{n}": str(POOL) for n in range(3)}
    history = History({str(POOL): record}, living, correlated_losses=losses, correlated_seconds=seconds)
    return Memory(boots=BOOTS, history=history)


def test_what_a_failing_pool_has_left_is_covered_as_far_as_it_may_be_missing() -> None:
    state = observe(*fleet(None, None, None), group=make_group(target=3, maximum=12))
    policy = build(DEFAULT)
    # A tenth comes unannounced and is missing for a minute: three × one in 75 s × 6 s is 0.24 in the mean.
    first = decide(state, policy, correlated(23.0, 1200.0), NOW)
    assert desired(first.actions, GroupRole.FALLBACK) == 2
    assert first.next_run_at == pytest.approx(NOW - 60 + CORRELATION_SECONDS)
    stable = decide(taken(state, first), policy, first.memory, first.next_run_at)
    assert desired(stable.actions, GroupRole.FALLBACK) == 0
    # Where drops take all at once, what is left after one is in no danger.
    assert decide(state, policy, correlated(0.0, 6000.0), NOW).actions == ()
    # Without notices each loss is missing for a minute, and more of them at once.
    silent = correlated(23.0, 1200.0)
    silent = replace(silent, history=replace(silent.history, losses=200.0, unannounced=200.0))
    assert desired(decide(state, policy, silent, NOW).actions, GroupRole.FALLBACK) == 3


def apart(pools: int) -> tuple[Observation, Memory]:
    """One worker in each of so many old pools, of which none was ever announced."""
    there = [replace(s, pool=replace(s.pool, zone=f"z{n}")) for n, s in enumerate(fleet(*[None] * pools))]
    history = History(
        {str(i.pool): PoolRecord(since=NOW, start_age=DEFAULT_AGE_SECONDS) for i in there},
        {i.id: str(i.pool) for i in there},
        losses=200.0,
        unannounced=200.0,
    )
    group = make_group(target=pools, maximum=2 * pools)
    return observe(*there, group=group), Memory(boots=BOOTS, history=history)


def test_many_pools_that_fail_apart_have_a_spare_in_spot_and_two_have_none() -> None:
    policy = ExpectedCost(30.0)
    state, memory = apart(16)
    assert desired(decide(state, policy, memory, NOW).actions, GroupRole.PRIMARY) == 17
    state, memory = apart(2)
    assert decide(state, policy, memory, NOW).actions == ()


def test_a_spare_leaves_room_for_the_successors_of_a_pool() -> None:
    state, memory = apart(16)
    state = replace(state, group=replace(state.group, maximum=17))
    assert desired(decide(state, ExpectedCost(30.0), memory, NOW).actions, GroupRole.PRIMARY) is None


@pytest.mark.parametrize(("price", "wanted"), [(0.7, None), (0.98, 0), (1.0, 0)])
def test_what_saves_nothing_is_not_bought_as_spot(price: float, wanted: int | None) -> None:
    prices = {"dear@a": 3.0, "cheap@a": price}
    serves = observe(*fleet(*[None] * 4), group=ROOMY, spot_prices=prices)
    assert decide(serves, build(DEFAULT), LEARNED, NOW).actions == ()  # and may stay
    state = observe(group=ROOMY, primary_desired=4, spot_prices=prices)
    assert desired(decide(state, build(DEFAULT), LEARNED, NOW).actions, GroupRole.PRIMARY) == wanted
    # Whom no shortage hurts buys no on-demand in its place.
    assert desired(decide(state, ExpectedCost(0.0), LEARNED, NOW).actions, GroupRole.PRIMARY) is None


def test_a_pool_that_loses_piece_by_piece_has_had_one_loss() -> None:
    memory = LEARNED
    for n in range(4):
        memory = update_memory(memory, observe(*fleet(*[None] * (4 - n))), NOW + 60 * n)
        assert memory.history.record(str(POOL)).losses == min(n, 1)
    # The second and the third, the older faded.
    assert memory.history.correlated_losses == pytest.approx(1.95)
    memory = update_memory(memory, observe(spot("s0")), NOW + 3600)
    memory = update_memory(memory, observe(), NOW + 3660)
    assert memory.history.record(str(POOL)).losses == pytest.approx(1.95)


def test_one_scout_tries_a_pool_where_shortage_is_dear() -> None:
    short = observe(primary_desired=4, refusals=(refusal(NO_ROOM_TO_GROW),), group=ROOMY)
    assert desired(decide(short, ExpectedCost(1000.0), LEARNED, NOW).actions, GroupRole.PRIMARY) == 1
    assert desired(decide(short, ExpectedCost(50.0), LEARNED, NOW).actions, GroupRole.PRIMARY) is None


def test_the_scouts_friends_follow_when_the_pool_has_lasted() -> None:
    scout = spot("s0", age=200)
    memory = young(NOW - 200)
    memory = replace(memory, history=replace(memory.history, pool_by_instance={"s0": str(POOL)}))
    state = observe(scout, primary_desired=1, group=ROOMY)
    first = decide(state, ExpectedCost(1000.0), memory, NOW)
    assert desired(first.actions, GroupRole.PRIMARY) is None
    assert first.next_run_at is not None
    later = decide(state, ExpectedCost(1000.0), first.memory, first.next_run_at)
    assert desired(later.actions, GroupRole.PRIMARY) == 4


def test_no_scout_tries_where_what_it_finds_saves_too_little() -> None:
    short = observe(primary_desired=4, refusals=(refusal(NO_ROOM_TO_GROW),), group=ROOMY)
    dear = replace(short, spot_prices={"a": 0.8})
    assert desired(decide(dear, ExpectedCost(1000.0), LEARNED, NOW).actions, GroupRole.PRIMARY) == 0
    many = replace(dear, group=make_group(target=40, maximum=80))
    assert desired(decide(many, ExpectedCost(1000.0), LEARNED, NOW).actions, GroupRole.PRIMARY) == 1


def test_a_cheap_shortage_buys_no_cover_for_spot_that_boots() -> None:
    state = observe(*fleet(None, None, None), spot("new", ready=False, age=10), group=ROOMY)
    assert decide(state, ExpectedCost(1.2), LEARNED, NOW).actions == ()
    assert desired(decide(state, ExpectedCost(100.0), LEARNED, NOW).actions, GroupRole.FALLBACK) == 1
    overdue = decide(state, ExpectedCost(1.2), LEARNED, NOW + 170)
    assert desired(overdue.actions, GroupRole.FALLBACK) == 1
    assert decide(observe(group=ROOMY), ExpectedCost(0.0), LEARNED, NOW).actions == ()


def test_a_cheap_shortage_waits_for_spot_to_be_launched_until_it_counts_as_refused() -> None:
    policy = ExpectedCost(1.2)
    state = observe(*fleet(NOW + 120, None, None, None), group=ROOMY)
    first = decide(state, policy, LEARNED, NOW)
    assert first.actions == ()
    assert desired(decide(state, ExpectedCost(5.0), LEARNED, NOW).actions, GroupRole.FALLBACK) == 1
    short = replace(state, launch_failures=(refusal(NO_ROOM_TO_GROW),))
    assert desired(decide(short, policy, LEARNED, NOW).actions, GroupRole.FALLBACK) == 1
    state = observe(*fleet(None, None, None), primary_desired=4, group=ROOMY)
    first = decide(state, policy, LEARNED, NOW)
    assert first.actions == ()
    assert first.next_run_at == NOW + LAUNCH_TIMEOUT_SECONDS
    late = decide(state, policy, first.memory, first.next_run_at)
    assert desired(late.actions, GroupRole.FALLBACK) == 1


def test_losses_teach_how_long_pools_last() -> None:
    memory, lost = LEARNED, replace(make_group(), maximum=12)
    for round_ in range(10):
        start = NOW + 10_000 * round_
        instance = replace(spot("x"), id=f"i{round_}", launched_at=start, ready_since=None)
        memory = update_memory(memory, observe(refusals=(refusal(NO_ROOM_TO_GROW),), group=lost), start)
        memory = update_memory(memory, observe(instance, group=lost), start + 60)
        memory = update_memory(memory, observe(group=lost), start + 300)
    assert memory.history.pool_hazard_factor(str(POOL), 1.0) > 1.5  # lost ten times within five minutes
    assert memory.history.unannounced_share > 0.3  # without a word
    stable = update_memory(LEARNED, observe(spot("s")), NOW)
    stable = update_memory(stable, observe(), NOW + 500_000)
    assert stable.history.pool_hazard_factor(str(POOL), 1.0) < 1.0


def test_a_termination_by_the_controller_is_not_a_loss() -> None:
    memory = update_memory(LEARNED, observe(spot("s")), NOW)
    memory = update_memory(replace(memory, termination_requests={"s": NOW}), observe(), NOW + 60)
    assert memory.history.losses == 0.0
    assert memory.history.record(str(POOL)).since is None


def test_an_observation_without_events_does_not_change_the_memory() -> None:
    state = observe(*fleet(None, None, None, None), group=ROOMY)
    first = decide(state, build(DEFAULT), Memory(), NOW).memory
    assert decide(state, build(DEFAULT), first, NOW + 3600).memory == first


def test_history_is_bounded_and_survives_storage() -> None:
    memory = Memory()
    for n in range(200):
        there = replace(spot(f"s{n}"), pool=replace(POOL, zone=f"zone-{n}"))
        memory = update_memory(memory, observe(there), NOW + 60 * n)
    assert len(memory.history.pools) <= 64
    assert codec.parse(History, json.loads(json.dumps(codec.dump(memory.history)))) == memory.history
    assert parse(dump(memory)) == memory


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_expected_losses_add_up(a: float, b: float, c: float) -> None:
    first, second, third = sorted((a, b, c))
    parts = expected_losses(first, second) + expected_losses(second, third)
    assert parts == pytest.approx(expected_losses(first, third), abs=1e-9)


def test_parameters_are_spelled_as_in_the_config() -> None:
    assert build("expected-cost", {"shortageCost": 30}) == ExpectedCost(30)
    with pytest.raises(
        ValueError, match="has no parameter 'shortage_cost'; its parameters are: shortageCost"
    ):
        build("expected-cost", {"shortage_cost": 30})
    with pytest.raises(ValueError, match="shortageCost must be a number ≥ 0, not -1"):
        build("expected-cost", {"shortageCost": -1})
    with pytest.raises(ValueError, match="policy 'expected' is unknown; use expected-cost or ready-handover"):
        build("expected")


def test_the_plan_says_why() -> None:
    state = observe(*fleet(NOW + 120, None, None, None), group=ROOMY)
    plan = build(DEFAULT).plan(GroupState.from_observation(state, update_memory(LEARNED, state, NOW), NOW))
    assert plan.reason == "target 4, 3 primary stable, 1 interrupted, 1 standby"


def test_the_parameters_of_the_contract_are_the_fields_of_the_policies() -> None:
    for name, parameters in policies.PARAMETERS.items():
        default: Any = build(name)
        known = {camel_case(each.name): each.name for each in fields(default)}
        assert {parameter: getattr(default, known[parameter]) for parameter in known} == {
            k: parameters[k].default for k in parameters
        }
        built = build(name, dict.fromkeys(parameters, 3.5))
        assert [getattr(built, known[parameter]) for parameter in parameters] == [3.5] * len(parameters)
