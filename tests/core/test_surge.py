"""A roll-out's requests to the controller: room for a batch, and no replacement for restarting instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.group.control import Control, Mode
from contracts.group.rollout_request import RolloutRequest
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies import build
from lambdas.core.model import GroupRole, Observation, SetDesired, TerminateInstances
from lambdas.core.rollout.surge import MAX_AGE_SECONDS, with_surge
from tests.core.build import NOW, group, observe, spot

POLICY = build("ready-handover", {})
FOUR = ("a", "b", "c", "d")


def rolls(seen: Observation, surge: int = 1, *restarting: str, at: float = NOW - 60) -> Observation:
    return replace(seen, rollout_request=RolloutRequest(int(at), surge, restarting))


def desired(seen: Observation) -> dict[GroupRole, int]:
    decision = decide(seen, POLICY, Memory(), NOW)
    assert not [action for action in decision.actions if isinstance(action, TerminateInstances)]
    return {a.group_role: a.capacity for a in decision.actions if isinstance(a, SetDesired)}


def test_a_surge_is_launched_as_spot_and_on_demand_as_the_policy_says() -> None:
    seen = observe(*map(spot, FOUR))
    assert desired(seen) == {}
    assert desired(rolls(seen, 1)) == {GroupRole.PRIMARY: 5, GroupRole.FALLBACK: 1}


def test_a_surge_stays_below_the_maximum() -> None:
    seen = observe(*map(spot, FOUR), group=group(maximum=5))
    assert desired(rolls(seen, 3)) == {GroupRole.FALLBACK: 1}
    assert with_surge(rolls(seen, 3), NOW).group.target == 5


def test_a_restarting_instance_gets_no_successor() -> None:
    five = [*map(spot, FOUR), spot("e", ready=False)]
    seen = observe(*five, primary_desired=5)
    assert desired(rolls(seen, 1, "e")) == {}
    assert desired(rolls(seen, 1)) == {GroupRole.FALLBACK: 1}


def test_its_word_is_taken_for_a_fifth_and_no_more() -> None:
    away = [spot(name, ready=False) for name in FOUR]
    seen = observe(*away, spot("e"), primary_desired=5)
    eased_ = with_surge(rolls(seen, 0, *FOUR), NOW)
    assert [i.id for i in eased_.instances if i.is_reporting] == ["a", "e"]


@pytest.mark.parametrize("at", [NOW - MAX_AGE_SECONDS - 1, NOW + 120])
def test_what_is_old_or_of_another_clock_is_not_followed(at: float) -> None:
    seen = observe(*map(spot, FOUR))
    assert desired(rolls(seen, 1, at=at)) == {}


def test_a_group_that_people_steer_is_theirs() -> None:
    seen = observe(*map(spot, FOUR), group=group(control=Control(Mode.MANUAL, 0)))
    assert desired(rolls(seen, 2)) == {}


def test_once_it_is_over_one_that_is_too_many_goes() -> None:
    five = [*map(spot, FOUR), spot("e", age=900.0)]
    decision = decide(observe(*five, primary_desired=5), POLICY, Memory(), NOW)
    assert [a.instance_ids for a in decision.actions if isinstance(a, TerminateInstances)] == [("e",)]
