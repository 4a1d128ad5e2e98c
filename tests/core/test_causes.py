"""Causes that last until something changes, and alarms that are raised once, over weeks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory, dump, parse
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.launch_failures import classify
from lambdas.core.model import GroupRole, Instance, LaunchFailure, Observation
from tests.core.build import NOW, alarms, carried_out, observe, on_demand, spot

TEXTS = {
    "primary-limit": "VcpuLimitExceeded",
    "primary-spot-limit": "MaxSpotInstanceCountExceeded",
    "primary-permission": "UnauthorizedOperation",
    "primary-configuration": "The image id 'ami-1' does not exist.",
}
HOUR = 3600.0


def step(seen: Observation, memory: Memory, now: float, name: str = "ready-handover") -> Decision:
    return decide(seen, build(name), memory, now)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("ended_by", ["success", "target", "configuration", "nothing"])
def test_a_cause_is_one_alarm_whatever_the_time_between_the_tries(kind: str, ended_by: str) -> None:
    """AWS tries again after minutes, then hours, and suspends launches after a day; texts may alternate."""
    draw, memory = random.Random(f"{kind} {ended_by}"), Memory()
    ready = (spot("a"), spot("b"))
    failure: tuple[LaunchFailure, ...] = ()
    opened: list[str] = []
    fallback, next_try, pause = 0, NOW, 600.0
    for minute in range(0, 14 * 24 * 60, 45):
        now = NOW + 60 * minute
        if now >= next_try:
            other = draw.choice((TEXTS[kind], TEXTS[kind], "UnfulfillableCapacity - no capacity"))
            other = other if minute else TEXTS[kind]
            failure = (LaunchFailure(GroupRole.PRIMARY, classify(other), now, other),)
            next_try, pause = now + pause, min(2 * pause, 24 * HOUR)
        said = not minute or draw.random() < 0.9
        lost = draw.random() < 0.05  # the activities could not be read
        seen = observe(
            *ready,
            fallback_desired=fallback,
            refusals=failure if said else (),
            configuration="one",
            activities_unknown=frozenset({GroupRole.PRIMARY}) if lost else frozenset(),
            suspended={GroupRole.PRIMARY: frozenset({"Launch"})} if minute > 24 * 60 else {},
        )
        decision = step(seen, memory, now)
        memory, opened = decision.memory, [*opened, *alarms(decision)]
        fallback = carried_out(seen, decision).fallback_desired
        assert f"primary:{kind.removeprefix('primary-')}" in memory.active_alarms
    assert sorted(opened) == sorted([kind, "primary-suspended"])
    covered = classify(TEXTS[kind]).withholds_on_demand
    assert fallback == (0 if covered else 2)
    now += 60
    end = {
        "success": replace(seen, launches_succeed=frozenset({GroupRole.PRIMARY}), launch_failures=()),
        "target": replace(seen, instances=(*ready, spot("c"), spot("d"))),
        "configuration": replace(seen, configuration="two"),
        "nothing": seen,
    }[ended_by]
    decision = step(replace(end, suspended={}), memory, now)
    assert bool(decision.memory.active_alarms) is (ended_by == "nothing")
    assert step(end, decision.memory, now + 60).memory.launch_failures == decision.memory.launch_failures


@pytest.mark.parametrize("name", NAMES)
def test_no_alarm_is_raised_twice_within_an_hour(name: str) -> None:
    """Processes are suspended, instances are silent and launches fail by turns."""
    draw, memory, last = random.Random(name), Memory(), dict[str, float]()
    opened = closed = 0
    was_open: set[str] = set()
    for minute in range(0, 7 * 24 * 60, 7):
        now = NOW + 60 * minute
        silent = [replace(spot(n), ready_since=None) for n in "ab"] if draw.random() < 0.9 else []
        failures = [
            LaunchFailure(role, classify(text), now - 60, text)
            for role in GroupRole
            for text in TEXTS.values()
            if draw.random() < 0.05
        ]
        instances: list[Instance] = [*silent, spot("c"), *([on_demand("o")] if draw.random() < 0.5 else [])]
        seen = observe(
            *instances,
            refusals=tuple(failures[:1]),
            suspended={GroupRole.FALLBACK: frozenset({"Launch"})} if draw.random() < 0.5 else {},
            launches_succeed=frozenset({GroupRole.PRIMARY} if draw.random() < 0.2 else ()),
            warm_pool_lacks=draw.choice((None, "", "refused", "refused")),
        )
        decision = step(seen, memory, now, name)
        memory = decision.memory
        for kind in alarms(decision):
            assert now - last.get(kind, -HOUR) >= HOUR
            last[kind], opened = now, opened + 1
        is_open = {*memory.active_alarms, *memory.alarms_without_cause}
        closed += len(was_open - is_open)
        was_open = is_open
    assert opened == closed + len(was_open) > 10
    assert parse(dump(memory)) == memory


def test_the_missing_primary_group_is_covered_at_once_and_is_not_changed() -> None:
    seen = observe(
        primary_desired=0,
        unobserved={GroupRole.PRIMARY: "the fleet is cancelled"},
        missing=frozenset({GroupRole.PRIMARY}),
        modifying=frozenset({GroupRole.PRIMARY}),
    )
    for name in NAMES:
        decision = step(seen, Memory(), NOW, name)
        assert alarms(decision) == ["primary-missing"]
        after = carried_out(seen, decision)
        assert (after.primary_desired, after.fallback_desired) == (0, seen.group.target)
        unobserved = replace(seen, unobserved={GroupRole.PRIMARY: "Throttling"}, missing=frozenset())
        assert "missing:primary" in step(unobserved, decision.memory, NOW + 60, name).memory.active_alarms


@pytest.mark.parametrize("name", NAMES)
def test_without_the_registry_what_has_booted_serves(name: str) -> None:
    before = observe(spot("a"), spot("b"), spot("c"), spot("d", ready=False))
    memory = step(before, Memory(), NOW, name).memory
    instances = tuple(replace(i, ready_since=None) for i in before.instances)
    for minute in range(120):
        seen = replace(before, instances=instances, registry_unknown=True)
        decision = step(seen, memory, NOW + 60 * minute, name)
        memory = decision.memory
        assert decision.state.ready == 3
        assert carried_out(seen, decision).instances == instances
        assert "silent" not in alarms(decision)
