"""Instances of several sizes in one group: capacity is counted in slots, never in instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.history import History
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.model import (
    GroupRole,
    Instance,
    Observation,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
)
from tests.core.build import NOW, carried_out, desired, group, observe, on_demand, released, spot

DEADLINE = NOW + 120


def sized(instance: Instance, slots: int) -> Instance:
    return replace(instance, slots=slots)


def look(state: Observation, policy: str = "ready-handover") -> Decision:
    return decide(state, build(policy), Memory(), NOW)


@pytest.mark.parametrize("policy", NAMES)
def test_a_lost_instance_of_four_slots_is_replaced_by_four_on_demand(policy: str) -> None:
    group_ = group(target=8, maximum=16)
    interrupted = sized(spot("i-doomed", deadline=DEADLINE), 4)
    state = observe(sized(spot("i-stays"), 4), interrupted, group=group_)
    memory = Memory(boots={PurchaseOption.ON_DEMAND: (60.0,)}, history=History(correlated_seconds=1e6))
    assert desired(decide(state, build(policy), memory, NOW).actions, GroupRole.FALLBACK) == 4


@pytest.mark.parametrize("policy", NAMES)
def test_a_bigger_instance_than_the_surplus_stays_and_a_smaller_one_goes(policy: str) -> None:
    big = [sized(on_demand(f"i-{n}"), 4) for n in range(2)]
    spots = [sized(spot(f"i-spot-{n}"), 1) for n in range(3)]
    state = observe(*spots, *big, group=group(target=8, maximum=16))
    # Five of eight are wanted behind three: eight stand, and three too many are none of them.
    held = look(state, policy)
    assert released(held.actions) == ()
    assert look(carried_out(state, held), policy).actions == ()
    small = replace(
        state, instances=(*spots, big[0], *(sized(on_demand(f"i-small-{n}"), 1) for n in range(4)))
    )
    assert len(released(look(small, policy).actions)) == 3


def test_a_serving_instance_stays_that_the_target_needs_a_part_of() -> None:
    serving = [*(spot(f"i-{n}") for n in range(3)), sized(on_demand("i-od"), 4)]
    state = observe(*serving, group=group(target=6, maximum=12))
    # Seven serve; this policy wants no on-demand, and without it there would be three of six.
    unwilling = build("expected-cost", {"shortageCost": 0.0})
    assert released(decide(state, unwilling, Memory(), NOW).actions) == ()
    full = replace(state, instances=(*serving, *(spot(f"i-more-{n}") for n in range(3))))
    assert released(decide(full, unwilling, Memory(), NOW).actions) == ("i-od",)


def test_each_group_holds_its_own_slots_although_the_other_could_replace_them() -> None:
    members = [sized(spot(f"i-{n}"), 4) for n in range(2)]
    state = observe(*members, sized(on_demand("i-od"), 4), group=group(target=5, maximum=16))
    # With four of its eight the primary group would launch anew.
    assert released(look(state).actions) == ("i-od",)


def test_what_the_last_launch_brought_beyond_the_target_is_no_surplus() -> None:
    # AWS launches until five are reached, and holds eight.
    state = observe(*(sized(spot(f"i-{n}"), 4) for n in range(2)), group=group(target=5, maximum=10))
    assert look(state).actions == ()


def test_what_is_beyond_the_target_goes_where_it_can_go_alone() -> None:
    small = [spot(f"i-{n}", age=3600 + n) for n in range(5)]
    state = observe(sized(spot("i-big"), 4), *small, group=group(target=6, maximum=12))
    decision = look(state)
    # Nine stand for six. AWS takes a slot off with each: from nine it comes to six, and launches nothing.
    reason = decision.reason
    assert decision.actions == (
        SetDesired(GroupRole.PRIMARY, 9, reason),
        TerminateInstances(GroupRole.PRIMARY, ("i-0", "i-1", "i-2"), reason, 3),
    )
    after = carried_out(state, decision)
    assert (after.primary_desired, look(after).actions) == (6, ())


def test_a_termination_lowers_the_desired_capacity_by_its_slots() -> None:
    # One slot was asked for, and an instance of four came; AWS goes below no minimum.
    state = observe(*(spot(f"i-{n}") for n in range(4)), sized(on_demand("i-od"), 4), fallback_desired=1)
    decision = look(state)
    reason = decision.reason
    assert decision.actions == (
        SetDesired(GroupRole.FALLBACK, 4, reason),
        TerminateInstances(GroupRole.FALLBACK, ("i-od",), reason, 4),
    )
    assert carried_out(state, decision).fallback_desired == 0


def test_a_group_that_is_to_be_empty_is_emptied_whatever_was_asked_for() -> None:
    state = observe(sized(spot("i-big"), 4), group=group(target=0), primary_desired=1)
    decision = look(state)
    assert desired(decision.actions, GroupRole.PRIMARY) == 4
    assert carried_out(state, decision).primary_desired == 0


def test_a_termination_reaches_the_target_while_the_other_group_is_modifying() -> None:
    members = (*(spot(f"i-{n}") for n in range(4)), sized(on_demand("i-od"), 4))
    state = observe(*members, primary_desired=8, fallback_desired=1, modifying=frozenset({GroupRole.PRIMARY}))
    decision = look(state)
    assert released(decision.actions) == ("i-od",)
    assert carried_out(state, decision).fallback_desired == 0


def test_the_base_is_held_in_slots() -> None:
    members = [sized(on_demand(f"i-{n}", side=GroupRole.PRIMARY), 4) for n in range(2)]
    state = observe(*members, sized(spot("i-spot"), 4), group=group(target=6, maximum=12, base=5))
    # One of the two would leave four slots of the five.
    assert released(look(replace(state, primary_desired=12)).actions) == ("i-spot",)


def test_the_maximum_is_in_slots() -> None:
    members = [sized(spot(f"i-{n}", deadline=DEADLINE), 4) for n in range(2)]
    state = observe(*members, group=group(target=8, maximum=10))
    assert desired(look(state).actions, GroupRole.FALLBACK) == 2


def test_the_overshoot_of_a_launch_above_the_maximum_is_allowed() -> None:
    members = [sized(spot(f"i-{n}"), 4) for n in range(3)]
    above = {
        maximum: look(observe(*members, group=group(target=9, maximum=maximum))).state.above_maximum
        for maximum in (9, 8)
    }
    assert above == {9: 0, 8: 1}
