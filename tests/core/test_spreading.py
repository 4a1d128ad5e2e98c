"""A service whose Spot Instances all run in one zone tries the others, one call at a time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.control import Control, Mode
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.capacity.spreading import PAUSE_SECONDS, TRY_SECONDS
from lambdas.core.model import GroupRole, Instance, Observation, Pool, SetDesired
from tests.core.build import NOW, carried_out, group, observe, released, spot

ZONES = ("a", "b", "c")
SERVICE = group(zones=ZONES)
MODES = (Mode.AUTOMATIC, Mode.DRY_RUN)


def in_zone(name: str, zone: str, launched: float = NOW - 7200, ready: bool = True) -> Instance:
    instance = replace(spot(name), pool=Pool("g5.xlarge", zone), launched_at=launched)
    return replace(instance, ready_since=launched + 180 if ready else None)


CROWDED = tuple(in_zone(name, "a") for name in "pqrs")


class Zones:
    """A minute between passes; a launch in a zone succeeds in the minutes that ``open_at`` has of it."""

    def __init__(self, seen: Observation, open_at: dict[str, range]) -> None:
        self.seen, self.open_at, self.memory = seen, open_at, Memory()
        self.tries: list[tuple[int, str]] = []
        self.ready: list[int] = []
        self.ended: list[str] = []

    def play(self, minutes: int) -> None:
        for minute in range(minutes):
            now = NOW + 60 * minute
            up = (
                replace(i, ready_since=i.launched_at + 180) if now >= i.launched_at + 180 else i
                for i in self.seen.instances
            )
            self.seen = replace(self.seen, instances=tuple(up))
            decision = decide(self.seen, build("expected-cost"), self.memory, now)
            tries = [a for a in decision.actions if isinstance(a, SetDesired) and a.only_there]
            others = tuple(a for a in decision.actions if a not in tries)
            self.seen = carried_out(self.seen, replace(decision, actions=others))
            self.memory = decision.memory
            self.ended += released(others)
            self.ready.append(decision.state.ready)
            for action in tries:
                self.tries.append((minute, action.zone))
                if minute in self.open_at.get(action.zone, ()):
                    new = in_zone(f"new-{minute}", action.zone, now, ready=False)
                    self.seen = replace(
                        self.seen, instances=(*self.seen.instances, new), primary_desired=action.capacity
                    )


def test_once_the_instance_in_another_zone_serves_one_of_the_crowded_zone_ends() -> None:
    world = Zones(observe(*CROWDED, group=SERVICE), {"c": range(1000)})
    world.play(120)
    assert sorted(i.pool.zone for i in world.seen.instances) == ["a", "a", "a", "c"]
    assert len(world.ended) == 1
    assert world.ended[0] in "pqrs"
    assert min(world.ready) == 4
    assert (world.seen.primary_desired, world.seen.fallback_desired) == (4, 0)


def test_an_instance_launched_in_the_second_of_its_try_is_kept() -> None:
    """EC2 gives launch times in whole seconds: this one looks older than the try that launched it."""
    new = in_zone("t", "b", NOW, ready=False)
    seen = observe(*CROWDED, new, group=SERVICE, primary_desired=5)
    memory = Memory(zone_tries={"b": NOW + 0.7})
    decision = decide(seen, build("expected-cost"), memory, NOW + 3)
    assert not released(decision.actions)


@given(opens=st.integers(0, 180), zone=st.sampled_from("bc"))
def test_a_zone_that_has_capacity_for_a_quarter_of_an_hour_has_an_instance(opens: int, zone: str) -> None:
    world = Zones(observe(*CROWDED, group=SERVICE), {zone: range(opens, 1000)})
    world.play(opens + 16)
    assert zone in {i.pool.zone for i in world.seen.instances if i.ready_since is not None}


def test_without_capacity_each_zone_costs_one_call_in_eleven_minutes() -> None:
    world = Zones(observe(*CROWDED, group=SERVICE), {})
    world.play(24 * 60)
    assert {i.id for i in world.seen.instances} == set("pqrs")
    minutes = [minute for minute, _ in world.tries]
    assert len(world.tries) == pytest.approx(2 * 24 * 3600 / TRY_SECONDS, abs=8)
    assert all(60 * (b - a) >= PAUSE_SECONDS for a, b in itertools.pairwise(minutes))
    for zone in "bc":
        own = [minute for minute, tried in world.tries if tried == zone]
        assert all(60 * (b - a) >= TRY_SECONDS for a, b in itertools.pairwise(own))


def test_a_dry_run_names_each_try_once() -> None:
    worlds = [Zones(observe(*CROWDED, group=group(zones=ZONES, control=Control(mode))), {}) for mode in MODES]
    for world in worlds:
        world.play(60)
    assert worlds[0].tries == worlds[1].tries


@pytest.mark.parametrize(
    "changed",
    [
        group(zones=ZONES, break_before_make=True),
        group(zones=("a",)),
        group(),
        group(zones=ZONES, base=1),
        group(zones=ZONES, maximum=4),
        group(zones=ZONES, control=Control(Mode.MANUAL, on_demand=0)),
        group(zones=ZONES, control=Control(Mode.PAUSED)),
    ],
    ids=["job", "one zone", "unknown zones", "On-Demand base", "no room", "manual", "paused"],
)
def test_a_group_that_cannot_spread_tries_nothing(changed: object) -> None:
    world = Zones(observe(*CROWDED, group=changed), {"b": range(1000)})  # type: ignore[arg-type]
    world.play(60)
    assert not world.tries


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_tried_while_something_is_missing_or_ends(name: str) -> None:
    noticed = replace(CROWDED[0], deadline=NOW + 100)
    for instances in (CROWDED[:3], (noticed, *CROWDED[1:]), (*CROWDED[:3], in_zone("t", "b"))):
        seen = observe(*instances, group=SERVICE, primary_desired=4)
        actions = decide(seen, build(name), Memory(), NOW).actions
        assert not [a for a in actions if isinstance(a, SetDesired) and a.group_role is GroupRole.PRIMARY]
