"""What the policies promise beyond the safety rules: just in time, exact wake-ups, twins, scouts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lambdas.core.availability import decide
from lambdas.core.history import (
    History,
    PoolRecord,
    expected_losses,
    from_json,
    to_json,
)
from lambdas.core.memory import RELEASE_SECONDS, Memory, dump, learn, parse
from lambdas.core.model import Market, Observation, SetDesired, Side
from lambdas.core.policies import DEFAULT, NAMES, build
from lambdas.core.policies.expected_cost import ExpectedCost
from lambdas.core.situation import Situation
from tests.core.build import NOW, desired, observe, on_demand, refusal, released, spot
from tests.core.build import group as make_group
from tests.core.test_availability_properties import observations

BOOTS = {Market.ON_DEMAND: (60.0,), Market.SPOT: (180.0,)}
LEARNED = Memory(boots=BOOTS)
ROOMY = make_group(maximum=12)
NO_ROOM_TO_GROW = "UnfulfillableCapacity - Unable to fulfill capacity"

boots = st.floats(0, 400)
costs = st.sampled_from([0.0, 1.2, 5.0, 100.0, 1000.0])


def fleet(*deadlines: float | None) -> list:
    return [spot(f"s{n}", deadline=at) for n, at in enumerate(deadlines)]


@given(st.lists(st.none() | st.floats(1, 120), min_size=4, max_size=4), boots, st.sampled_from([0.0, 45.0]))
def test_a_successor_is_never_later_than_the_drain_minus_the_learned_boot(
    ahead: list[float | None], boot: float, drain: float
) -> None:
    state = observe(
        *fleet(*(None if a is None else NOW + a for a in ahead)), group=replace(ROOMY, drain_seconds=drain)
    )
    memory = Memory(boots={Market.ON_DEMAND: (boot, boot / 2), Market.SPOT: (180.0,)})
    decision = decide(state, build(DEFAULT), memory, NOW)
    due = [a - drain - boot for a in ahead if a is not None]
    assert (desired(decision.actions, Side.FALLBACK) or 0) == sum(d <= 1e-6 for d in due)
    later = [NOW + d for d in due if d > 1e-6]
    if later:
        assert decision.wake_at is not None
        assert decision.wake_at <= min(later) + 1e-6


def test_before_any_boot_was_seen_the_successor_starts_at_the_notice() -> None:
    state = observe(*fleet(NOW + 120, None, None, None), group=ROOMY)
    assert desired(decide(state, build(DEFAULT), Memory(), NOW).actions, Side.FALLBACK) == 1
    assert decide(state, build(DEFAULT), LEARNED, NOW).actions == ()


def test_a_slow_boot_is_believed_at_once() -> None:
    slow = learn(LEARNED, observe(*fleet(None, None, None, None), on_demand("o", age=1000)), NOW)
    assert slow.boot_seconds(Market.ON_DEMAND, 0.0) == 60.0
    slow = replace(slow, boots={**BOOTS, Market.ON_DEMAND: (60.0, 115.0, 60.0)})
    state = observe(*fleet(NOW + 116, None, None, None), group=ROOMY)
    first = decide(state, build(DEFAULT), slow, NOW)
    assert first.wake_at == NOW + 1
    assert desired(decide(state, build(DEFAULT), slow, NOW + 1).actions, Side.FALLBACK) == 1


def test_where_the_ceiling_is_near_nothing_waits() -> None:
    # The group replaces the doomed at once: by the last moment there would be no room for on-demand.
    state = observe(*fleet(*[NOW + 120.0] * 4), group=make_group(maximum=8))
    assert desired(decide(state, build(DEFAULT), LEARNED, NOW).actions, Side.FALLBACK) == 4


def unchanged(state: Observation, actions: tuple) -> Observation:
    asked = {a.side: a.capacity for a in actions if isinstance(a, SetDesired)}
    return replace(
        state,
        primary_desired=asked.get(Side.PRIMARY, state.primary_desired),
        fallback_desired=asked.get(Side.FALLBACK, state.fallback_desired),
    )


@given(observations(), st.sampled_from(NAMES), costs, st.floats(0, 1), st.booleans())
def test_until_it_wakes_nothing_new_is_wanted(
    state: Observation, name: str, cost: float, share: float, learned: bool
) -> None:
    policy = ExpectedCost(cost) if name == ExpectedCost.name else build(name)
    first = decide(state, policy, LEARNED if learned else Memory(), NOW)
    until = min(first.wake_at or NOW + 600, NOW + RELEASE_SECONDS)  # a release is believed for so long
    later = NOW + share * (until - NOW)
    assume(later < until - 1e-6)
    again = decide(unchanged(state, first.actions), policy, parse(dump(first.memory)), later)
    assert again.actions == ()


def young(since: float, **boots: tuple[float, ...]) -> Memory:
    record = PoolRecord(since=since, start_age=0.0)
    history = History(
        pools={str(spot("x").pool): record}, living={f"s{n}": str(spot("x").pool) for n in range(4)}
    )
    return Memory(boots=BOOTS, history=history)


def test_a_twin_stays_beside_spot_in_a_young_pool_until_the_pool_is_old_enough() -> None:
    policy = ExpectedCost(500.0)
    state = observe(*fleet(None, None, None, None), *(on_demand(f"o{n}") for n in range(4)), group=ROOMY)
    first = decide(state, policy, young(NOW - 300), NOW)
    assert released(first.actions) == ()
    assert first.wake_at is not None
    assert decide(state, policy, first.memory, first.wake_at - 0.01).actions == ()
    assert len(released(decide(state, policy, first.memory, first.wake_at).actions)) == 4
    # What is not there is not bought to be a twin, and a low shortage cost keeps none.
    bare = observe(*fleet(None, None, None, None), group=ROOMY)
    assert decide(bare, policy, young(NOW - 300), NOW).actions == ()
    assert len(released(decide(state, ExpectedCost(10.0), young(NOW - 300), NOW).actions)) == 4


def test_one_scout_tries_a_pool_where_shortage_is_dear() -> None:
    short = observe(primary_desired=4, refusals=(refusal(NO_ROOM_TO_GROW),), group=ROOMY)
    assert desired(decide(short, ExpectedCost(1000.0), LEARNED, NOW).actions, Side.PRIMARY) == 1
    assert desired(decide(short, ExpectedCost(50.0), LEARNED, NOW).actions, Side.PRIMARY) is None


def test_the_scouts_friends_follow_when_the_pool_has_lasted() -> None:
    scout = spot("s0", age=200)
    memory = replace(
        young(NOW - 200), history=replace(young(NOW - 200).history, living={"s0": str(scout.pool)})
    )
    state = observe(scout, primary_desired=1, group=ROOMY)
    first = decide(state, ExpectedCost(1000.0), memory, NOW)
    assert desired(first.actions, Side.PRIMARY) is None
    assert first.wake_at is not None
    assert (
        desired(decide(state, ExpectedCost(1000.0), first.memory, first.wake_at).actions, Side.PRIMARY) == 4
    )


def test_a_cheap_shortage_buys_no_cover_for_spot_that_boots() -> None:
    state = observe(*fleet(None, None, None), spot("new", ready=False, age=10), group=ROOMY)
    assert decide(state, ExpectedCost(1.2), LEARNED, NOW).actions == ()
    assert desired(decide(state, ExpectedCost(100.0), LEARNED, NOW).actions, Side.FALLBACK) == 1
    overdue = decide(state, ExpectedCost(1.2), LEARNED, NOW + 170)
    assert desired(overdue.actions, Side.FALLBACK) == 1
    assert decide(observe(group=ROOMY), ExpectedCost(0.0), LEARNED, NOW).actions == ()


def test_losses_teach_how_long_pools_last() -> None:
    pool = str(spot("x").pool)
    memory, lost = LEARNED, replace(make_group(), maximum=12)
    for round_ in range(10):
        start = NOW + 10_000 * round_
        instance = replace(spot("x"), id=f"i{round_}", launched_at=start, ready_since=None)
        memory = learn(memory, observe(refusals=(refusal(NO_ROOM_TO_GROW),), group=lost), start)
        memory = learn(memory, observe(instance, group=lost), start + 60)
        memory = learn(memory, observe(group=lost), start + 300)
    assert memory.history.factor(pool) > 1.5  # lost ten times within five minutes
    assert memory.history.unannounced_share > 0.3  # without a word
    calm = learn(LEARNED, observe(spot("s")), NOW)
    calm = learn(calm, observe(), NOW + 500_000)
    assert calm.history.factor(pool) < 1.0


def test_what_we_released_is_no_loss() -> None:
    memory = learn(LEARNED, observe(spot("s")), NOW)
    memory = learn(replace(memory, released={"s": NOW}), observe(), NOW + 60)
    assert memory.history.losses == 0.0
    assert memory.history.record(spot("s").pool).since is None


def test_a_quiet_look_changes_no_memory() -> None:
    state = observe(*fleet(None, None, None, None), group=ROOMY)
    first = decide(state, build(DEFAULT), Memory(), NOW).memory
    assert decide(state, build(DEFAULT), first, NOW + 3600).memory == first


def test_history_is_bounded_and_survives_storage() -> None:
    memory = Memory()
    for n in range(200):
        there = replace(spot(f"s{n}"), pool=replace(spot("x").pool, zone=f"zone-{n}"))
        memory = learn(memory, observe(there), NOW + 60 * n)
    assert len(memory.history.pools) <= 64
    assert from_json(to_json(memory.history)) == memory.history
    assert parse(dump(memory)) == memory


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_expected_losses_add_up(a: float, b: float, c: float) -> None:
    first, second, third = sorted((a, b, c))
    parts = expected_losses(first, second) + expected_losses(second, third)
    assert parts == pytest.approx(expected_losses(first, third), abs=1e-9)


def test_knobs_are_spelled_as_in_the_config() -> None:
    assert build("expected-cost", {"shortageCost": 30}) == ExpectedCost(30)
    with pytest.raises(ValueError, match="has no knob 'shortage_cost', allowed: shortageCost"):
        build("expected-cost", {"shortage_cost": 30})
    with pytest.raises(ValueError, match="shortageCost is -1, a number ≥ 0 is needed"):
        build("expected-cost", {"shortageCost": -1})
    with pytest.raises(
        ValueError, match="policy 'expected' is unknown, allowed: expected-cost, ready-handover"
    ):
        build("expected")


def test_the_plan_says_why() -> None:
    state = observe(*fleet(NOW + 120, None, None, None), group=ROOMY)
    plan = build(DEFAULT).plan(Situation.of(state, learn(LEARNED, state, NOW), NOW))
    assert plan.reason == "target 4, 3 primary ready and staying, 0 in young pools, 1 doomed"
