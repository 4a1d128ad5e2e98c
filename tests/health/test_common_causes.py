"""What breaks many at once is one cause: nothing is replaced, and people hear of it once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from tests.health.scenes import (
    Play,
    begun,
    crashing,
    idle,
    missing,
    over,
    restarted,
    silent,
    stuck,
    wished,
    xid,
)

TEN = tuple(f"i-{n:02}" for n in range(10))
Broken = Callable[[Worker], Worker | None]


def everywhere(broken: Broken, count: int = 10) -> Play:
    group = Play().add(*TEN[:count])
    group.breaks = dict.fromkeys(TEN, broken)
    return group


@pytest.mark.parametrize(
    ("broken", "family"),
    [
        (crashing(), "crashing"),
        (silent(), "unheard"),
        (missing, "unheard"),
        (stuck, "unfinished"),
        (idle, "unfinished"),
        (xid, "xid"),
    ],
)
@pytest.mark.parametrize("count", [2, 10])
def test_what_all_show_at_once_replaces_nobody_and_is_told_once(
    broken: Broken, family: str, count: int
) -> None:
    group = everywhere(broken, count)
    seen = group.look(70)
    assert (wished(seen), restarted(seen)) == ({}, [])
    [key] = begun(seen)
    assert key.startswith(f"common/{family}/")
    group.breaks.clear()
    seen = group.look(30)
    assert over(seen) == [key]
    assert wished(seen) == {}


@pytest.mark.parametrize(("broken", "goes_on"), [(missing, True), (stuck, False)])
def test_people_hear_of_what_the_controller_replaces_all_the_same(broken: Broken, goes_on: bool) -> None:
    [incident] = [one for decision in everywhere(broken).look(70) for one in decision.begun]
    said = "The controller replaces an instance that is not heard for 30 minutes" in incident.what
    assert said is goes_on


def test_a_bad_image_on_a_few_is_told_from_the_many_that_run_the_old_one() -> None:
    group = Play().add(*TEN)
    group.look()
    group.breaks = dict.fromkeys(TEN[:3], crashing(version="v2"))
    seen = group.look(60)
    assert wished(seen) == {}
    assert begun(seen) == ["common/crashing/version v2"]


def test_who_crashes_alone_on_a_version_of_many_is_replaced() -> None:
    group = Play().add(*TEN)
    group.breaks = {"i-05": crashing()}
    assert wished(group.look(10)) == {"i-05": "crashing"}


def test_a_cause_that_comes_and_goes_is_one_incident_and_lets_nobody_be_replaced_between() -> None:
    group = everywhere(xid)
    seen = group.look(5)
    for _ in range(5):
        group.breaks = {"i-00": xid}
        seen += group.look(5)
        group.breaks = dict.fromkeys(TEN, xid)
        seen += group.look(5)
    assert wished(seen) == {}
    assert begun(seen) == ["common/xid/version v1"]
    assert over(seen) == []


def test_the_silence_of_the_whole_stack_is_no_instances_fault_even_where_a_group_has_one() -> None:
    group = Play().add("i-00")
    group.breaks = {"i-00": silent()}
    group.silent_registry = True
    seen = group.look(60)
    assert wished(seen) == {}
    assert begun(seen) == ["common/unheard/registry"]


def test_a_site_that_is_cut_off_holds_nothing_up_in_aws() -> None:
    group = Play().add(*TEN).add("gpu-1", "gpu-2", on_premises=True)
    group.breaks = {"gpu-1": silent(), "gpu-2": silent(), "i-03": xid}
    seen = group.look(10)
    assert begun(seen) == ["common/unheard/on-premises"]
    assert wished(seen) == {"i-03": "xid"}


def test_a_broker_that_is_down_for_ten_minutes_costs_nothing() -> None:
    group = Play().add(*TEN)
    group.look(30)
    group.breaks = dict.fromkeys(TEN, stuck)
    group.waiting = None
    seen = group.look(10)
    group.waiting = 20_000
    seen += group.look(2)  # they connect again
    group.breaks.clear()
    seen += group.look(60)
    assert (wished(seen), restarted(seen), begun(seen)) == ({}, [], [])


def test_instances_that_are_never_well_are_replaced_thrice_a_day_and_no_more() -> None:
    group = Play(HealthSettings(grace_seconds=300)).add("i-0", age=0.0)
    replaced = 0
    told: list[str] = []
    for minute in range(24 * 60 - 60):
        [decision] = group.look()
        group.breaks = dict.fromkeys(group.hosts, missing)
        told += begun([decision])
        if decision.wishes:  # the controller ends it, and another is launched
            group.hosts.clear()
            replaced += 1
            group.add(f"i-{minute}", age=0.0)
            group.breaks = dict.fromkeys(group.hosts, missing)
    assert replaced == 3
    assert told == ["budget", "in-vain"]
