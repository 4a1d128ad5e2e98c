"""Jobs whose volume is with one instance at a time: the successor stands by, then its predecessor lets go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.model import GroupRole, Instance, Observation, PurchaseOption
from tests.core.build import NOW, carried_out, desired, observe, on_demand, refusal, released, spot
from tests.core.build import group as make_group

JOB = make_group("resnet", target=1, maximum=2, break_before_make=True)
NO_SPOT = refusal("Could not launch Spot Instances. UnfulfillableCapacity - no capacity")
LEARNED = Memory(boots={PurchaseOption.SPOT: (180.0,), PurchaseOption.ON_DEMAND: (180.0,)})


def standby(instance: Instance) -> Instance:
    return replace(instance, ready_since=None, is_standby=True)


def decided(state: Observation, policy: str = "expected-cost", shortage_cost: float = 2.0) -> Decision:
    parameters = {"shortageCost": shortage_cost} if policy == "expected-cost" else {}
    return decide(state, build(policy, parameters), LEARNED, NOW)


@pytest.mark.parametrize("policy", NAMES)
def test_on_demand_lets_go_when_its_successor_stands_by(policy: str) -> None:
    state = observe(standby(spot("s", age=240)), on_demand("d"), group=JOB)
    decision = decided(state, policy)
    assert released(decision.actions) == ("d",)
    again = decide(carried_out(state, decision), build(policy), decision.memory, NOW)
    assert again.actions == ()


@pytest.mark.parametrize("policy", NAMES)
def test_a_service_terminates_an_instance_only_after_its_successor_serves(policy: str) -> None:
    state = observe(standby(spot("s", age=240)), on_demand("d"), group=make_group(target=1, maximum=2))
    assert released(decided(state, policy).actions) == ()


def test_on_demand_goes_on_while_its_successor_boots() -> None:
    state = observe(spot("s", ready=False, age=60), on_demand("d"), group=JOB)
    assert released(decided(state).actions) == ()


def test_no_instance_is_bought_while_another_moves_the_volume() -> None:
    state = observe(standby(spot("s", age=3000)), group=JOB)
    assert decided(state).actions == ()


def test_on_demand_that_stands_by_in_vain_goes() -> None:
    state = observe(spot("s"), standby(on_demand("d")), group=JOB)
    assert released(decided(state).actions) == ("d",)


def test_a_standby_instance_with_a_notice_is_not_stable() -> None:
    interrupted = replace(standby(spot("s", age=240)), deadline=NOW + 90)
    state = observe(interrupted, on_demand("d"), group=JOB, refusals=(NO_SPOT,))
    assert released(decided(state).actions) == ()


def test_a_job_goes_on_demand_where_spot_is_refused_and_not_for_a_spot_boot() -> None:
    booting = observe(spot("s", ready=False, age=10), group=JOB, fallback_desired=0)
    assert desired(decided(booting).actions, GroupRole.FALLBACK) is None
    short = observe(group=JOB, fallback_desired=0, refusals=(NO_SPOT,))
    assert desired(decided(short).actions, GroupRole.FALLBACK) == 1
    assert desired(decided(short, shortage_cost=0.5).actions, GroupRole.FALLBACK) is None
