"""Jobs whose volume is with one instance at a time: hand-overs, and On-Demand where the volume is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory, dump, parse, update_memory
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.model import GroupRole, Instance, Observation, Pool, PurchaseOption, SetDesired
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
def test_an_on_demand_instance_is_released_when_its_successor_is_standby(policy: str) -> None:
    state = observe(standby(spot("s", age=240)), on_demand("d"), group=JOB)
    decision = decided(state, policy)
    assert released(decision.actions) == ("d",)
    again = decide(carried_out(state, decision), build(policy), decision.memory, NOW)
    assert again.actions == ()


@pytest.mark.parametrize("policy", NAMES)
def test_a_service_terminates_an_instance_only_after_its_successor_serves(policy: str) -> None:
    state = observe(standby(spot("s", age=240)), on_demand("d"), group=make_group(target=1, maximum=2))
    assert released(decided(state, policy).actions) == ()


def test_an_on_demand_instance_stays_while_its_successor_boots() -> None:
    state = observe(spot("s", ready=False, age=60), on_demand("d"), group=JOB)
    assert released(decided(state).actions) == ()


def test_no_instance_is_bought_while_another_moves_the_volume() -> None:
    state = observe(standby(spot("s", age=3000)), group=JOB)
    assert decided(state).actions == ()


def test_a_standby_on_demand_instance_is_released_while_spot_runs() -> None:
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


ZONAL = make_group("resnet", target=1, maximum=2, break_before_make=True, by_zone=True)
SHORT = observe(group=ZONAL, fallback_desired=0, refusals=(NO_SPOT,))
AT_HOME = Memory(volume_zone="us-west-2a")


def in_b(ready_since: float | None) -> Instance:
    """Return an instance of the job in the other zone; it waits for the job where it is not ready."""
    pool, waits = Pool("g6.xlarge", "us-west-2b"), ready_since is None
    return replace(spot("b"), pool=pool, ready_since=ready_since, is_standby=waits)


def asked(decision: Decision) -> list[tuple[int, str]]:
    """Return what a decision sets on the fallback, and where."""
    sets = [a for a in decision.actions if isinstance(a, SetDesired) and a.group_role is GroupRole.FALLBACK]
    return [(a.capacity, a.zone) for a in sets]


def asked_for(memory: Memory, state: object = SHORT) -> list[tuple[int, str]]:
    return asked(decide(state, build("expected-cost", {"shortageCost": 2.0}), memory, NOW))


def test_the_volume_zone_is_that_of_the_last_working_instance() -> None:
    first = update_memory(Memory(), observe(spot("a"), in_b(None), group=ZONAL), NOW)
    assert first.volume_zone == "us-west-2a"  # who waits has no volume
    assert update_memory(first, SHORT, NOW).volume_zone == "us-west-2a"
    taken_over = update_memory(first, observe(spot("a"), in_b(NOW - 10), group=ZONAL), NOW)
    assert taken_over.volume_zone == "us-west-2b"
    assert parse(dump(taken_over)).volume_zone == "us-west-2b"
    unplaced = replace(spot("c"), pool=Pool("g5.xlarge", ""))  # a fleet's list names no zone
    assert update_memory(first, observe(unplaced, group=ZONAL), NOW).volume_zone == "us-west-2a"


def test_a_service_has_no_home() -> None:
    assert update_memory(AT_HOME, observe(spot("a")), NOW).volume_zone == ""


def test_on_demand_is_asked_for_at_home() -> None:
    assert asked_for(AT_HOME) == [(1, "us-west-2a")]


def test_without_a_volume_zone_or_zonal_requests_any_zone_is_used() -> None:
    assert asked_for(Memory()) == [(1, "")]
    of_any_zone = make_group(target=1, maximum=2, break_before_make=True)
    assert asked_for(AT_HOME, replace(SHORT, group=of_any_zone)) == [(1, "")]


def test_what_is_lowered_names_no_zone() -> None:
    assert asked_for(AT_HOME, replace(SHORT, fallback_desired=2)) == [(1, "")]


def test_it_is_asked_for_once() -> None:
    first = decide(SHORT, build("expected-cost", {"shortageCost": 2.0}), AT_HOME, NOW)
    assert asked_for(first.memory, replace(SHORT, fallback_desired=1)) == []
