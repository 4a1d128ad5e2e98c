"""Where a job's volume is: on-demand is asked for there, if its fallback takes such orders."""

from __future__ import annotations

from dataclasses import replace

from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory, dump, parse, update_memory
from lambdas.core.capacity.policies import build
from lambdas.core.model import GroupRole, Instance, Pool, SetDesired
from tests.core.build import NOW, observe, refusal, spot
from tests.core.build import group as make_group

JOB = make_group("resnet", target=1, maximum=2, break_before_make=True, by_zone=True)
NO_SPOT = refusal("Could not launch Spot Instances. UnfulfillableCapacity - no capacity")
SHORT = observe(group=JOB, fallback_desired=0, refusals=(NO_SPOT,))
AT_HOME = Memory(volume_zone="us-west-2a")


def in_b(ready_since: float | None) -> Instance:
    """Return an instance of the job in the other zone; it waits for the job where it is not ready."""
    pool, waits = Pool("g6.xlarge", "us-west-2b"), ready_since is None
    return replace(spot("b"), pool=pool, ready_since=ready_since, is_standby=waits)


def asked(decision: Decision) -> list[tuple[int, str]]:
    """Return what a decision sets on the fallback, and where."""
    sets = [a for a in decision.actions if isinstance(a, SetDesired) and a.group_role is GroupRole.FALLBACK]
    return [(a.capacity, a.zone) for a in sets]


def decided(memory: Memory, state: object = SHORT) -> list[tuple[int, str]]:
    return asked(decide(state, build("expected-cost", {"shortageCost": 2.0}), memory, NOW))


def test_the_volume_zone_is_that_of_the_last_working_instance() -> None:
    first = update_memory(Memory(), observe(spot("a"), in_b(None), group=JOB), NOW)
    assert first.volume_zone == "us-west-2a"  # who waits has no volume
    assert update_memory(first, SHORT, NOW).volume_zone == "us-west-2a"
    taken_over = update_memory(first, observe(spot("a"), in_b(NOW - 10), group=JOB), NOW)
    assert taken_over.volume_zone == "us-west-2b"
    assert parse(dump(taken_over)).volume_zone == "us-west-2b"
    unplaced = replace(spot("c"), pool=Pool("g5.xlarge", ""))  # a fleet's list names no zone
    assert update_memory(first, observe(unplaced, group=JOB), NOW).volume_zone == "us-west-2a"


def test_a_service_has_no_home() -> None:
    assert update_memory(AT_HOME, observe(spot("a")), NOW).volume_zone == ""


def test_on_demand_is_asked_for_at_home() -> None:
    assert decided(AT_HOME) == [(1, "us-west-2a")]


def test_without_a_volume_zone_or_zonal_requests_any_zone_is_used() -> None:
    assert decided(Memory()) == [(1, "")]
    of_any_zone = make_group(target=1, maximum=2, break_before_make=True)
    assert decided(AT_HOME, replace(SHORT, group=of_any_zone)) == [(1, "")]


def test_what_is_lowered_names_no_zone() -> None:
    assert decided(AT_HOME, replace(SHORT, fallback_desired=2)) == [(1, "")]


def test_it_is_asked_for_once() -> None:
    first = decide(SHORT, build("expected-cost", {"shortageCost": 2.0}), AT_HOME, NOW)
    assert decided(first.memory, replace(SHORT, fallback_desired=1)) == []
