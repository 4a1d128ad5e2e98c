"""A service whose Spot Instances all run in one zone tries another, a bounded number of times a day."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from contracts.group.control import Control, Mode
from lambdas.core.capacity import spreading
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.model import GroupRole, Instance, Observation, Pool
from tests.core.build import NOW, carried_out, desired, group, observe, released, spot

ZONES = ("a", "b")
SERVICE = group(zones=ZONES)


def in_zone(name: str, zone: str, launched: float = NOW - 7200, ready: bool = True) -> Instance:
    instance = replace(spot(name), pool=Pool("g5.xlarge", zone), launched_at=launched)
    return replace(instance, ready_since=launched + 180 if ready else None)


CROWDED = tuple(in_zone(name, "a") for name in "pqrs")


def play(
    seen: Observation, minutes: int, lands_in: str | None, memory: Memory | None = None
) -> tuple[list[Decision], Observation]:
    """Run a pass a minute; AWS launches what is desired in ``lands_in``, ready in three minutes."""
    memory, decisions = memory or Memory(), []
    for minute in range(minutes):
        now = NOW + 60 * minute
        up = [
            i if now < i.launched_at + 180 else replace(i, ready_since=i.launched_at + 180)
            for i in seen.instances
        ]
        seen = replace(seen, instances=tuple(up))
        decision = decide(seen, build("expected-cost"), memory, now)
        seen, memory = carried_out(seen, decision), decision.memory
        decisions.append(decision)
        if lands_in and seen.primary_desired > len(seen.instances_of(GroupRole.PRIMARY)):
            new = in_zone(f"new-{minute}", lands_in, now, ready=False)
            seen = replace(seen, instances=(*seen.instances, new))
    return decisions, seen


def test_the_instance_in_another_zone_stays_and_one_of_the_crowded_zone_ends_once_it_serves() -> None:
    decisions, after = play(observe(*CROWDED, group=SERVICE), 120, "b")
    zones = sorted(i.pool.zone for i in after.instances)
    assert zones == ["a", "a", "a", "b"]
    ended = [i for decision in decisions for i in released(decision.actions)]
    assert len(ended) == 1
    assert ended[0] in "pqrs"
    assert min(decision.state.ready for decision in decisions) == 4
    assert after.fallback_desired == 0


@pytest.mark.parametrize("lands_in", ["a", None])
def test_a_try_that_finds_no_other_zone_ends_within_two_passes_and_comes_again_later(
    lands_in: str | None,
) -> None:
    decisions, after = play(observe(*CROWDED, group=SERVICE), 24 * 60, lands_in)
    assert {i.id for i in after.instances} == set("pqrs")
    raised = [n for n, decision in enumerate(decisions) if desired(decision.actions, GroupRole.PRIMARY) == 5]
    assert 10 < len(raised) <= spreading.MAX_TRIES_A_DAY
    assert all(second - first >= 10 for first, second in itertools.pairwise(raised))
    assert all(len(decision.state.primary) <= 5 for decision in decisions)
    assert max(sum(d.state.primary_desired > 4 for d in decisions[n : n + 4]) for n in raised) <= 2


@pytest.mark.parametrize(
    "changed",
    [
        group(zones=ZONES, break_before_make=True),
        group(zones=("a",)),
        group(),
        group(zones=ZONES, maximum=4),
        group(zones=ZONES, control=Control(Mode.MANUAL, on_demand=0)),
        group(zones=ZONES, control=Control(Mode.PAUSED)),
    ],
    ids=["job", "one zone", "unknown zones", "no room", "manual", "paused"],
)
def test_a_group_that_cannot_spread_requests_nothing(changed: object) -> None:
    decisions, _ = play(observe(*CROWDED, group=changed), 60, "b")  # type: ignore[arg-type]
    assert not [a for decision in decisions for a in decision.actions]


@pytest.mark.parametrize("name", NAMES)
def test_no_try_begins_while_something_is_missing_or_ends(name: str) -> None:
    noticed = replace(CROWDED[0], deadline=NOW + 100)
    for instances in (CROWDED[:3], (noticed, *CROWDED[1:]), (*CROWDED[:3], in_zone("t", "b"))):
        decision = decide(observe(*instances, group=SERVICE, primary_desired=4), build(name), Memory(), NOW)
        assert "tries another zone" not in decision.reason
