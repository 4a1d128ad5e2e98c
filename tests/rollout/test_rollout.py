"""Roll-outs in simulated time: a good release reaches all in time, a bad one goes back, 90 % are served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lambdas.core.rollout.memory import Rollout
from lambdas.core.rollout.step import TAKEN_BACK, WAITS
from lambdas.core.rollout.verdict import PROVED_SECONDS
from tests.rollout.scenes import BAD, LOOK, NEW, OLD, Fault, Service, release, share


def stated(service: Service) -> float:
    """The time of docs/services.md: two boots, one host, then the others in batches."""
    batch = -(-service.target * service.settings.most_at_once // 100)
    rounds = 1 + -(-(service.target + batch - 1) // batch)
    return 2 * (service.boot + 2 * LOOK) + rounds * (service.anew + PROVED_SECONDS + 3 * LOOK)


@pytest.mark.parametrize(
    ("target", "maximum", "per_slot"), [(1, 2, 1), (3, 5, 1), (4, 6, 4), (8, 16, 1), (10, 10, 1), (23, 30, 2)]
)
def test_a_good_release_reaches_all_workers_in_the_stated_time(
    target: int, maximum: int, per_slot: int
) -> None:
    service = Service(target, maximum, per_slot)
    service.wanted = NEW
    service.least = 10**9
    if maximum > target:
        limit = stated(service)
    else:  # without room for more, a tenth at a time
        limit = stated(replace(service, settings=replace(service.settings, most_at_once=10)))
    took = service.until(lambda: service.all_run(NEW), 600)
    assert took <= limit
    assert share(service) >= 0.9
    assert service.messages == []
    service.play(20)
    assert service.memory.rollout.stable == NEW
    assert service.memory.rollout.trial is None
    assert len(service.instances) == target
    assert service.last is not None
    assert service.last.rollout.rolling is None


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize(("target", "maximum"), [(3, 4), (8, 16), (20, 20)])
def test_a_bad_release_goes_back_and_people_hear_of_it_once(target: int, maximum: int, fault: Fault) -> None:
    service = Service(target, maximum, faults={NEW.version: fault})
    service.wanted = NEW
    service.least = 10**9
    service.until(lambda: service.memory.rollout.refused == NEW.version, 120)
    service.until(lambda: service.all_run(OLD), 60)
    service.play(180)
    assert share(service) >= 0.9
    assert service.all_run(OLD)
    assert service.messages == [f"{TAKEN_BACK}/{NEW.version}"]
    assert service.replaced == []
    assert service.row.of("i-new") == OLD


def test_what_was_refused_is_not_tried_again_until_the_stack_file_says_another() -> None:
    service = Service(4, 6, faults={NEW.version: "crashes"})
    service.wanted = NEW
    service.until(lambda: service.memory.rollout.refused == NEW.version, 120)
    service.until(lambda: service.all_run(OLD), 60)
    service.play(600)
    assert {one.runs for one in service.instances.values()} == {OLD}
    service.wanted = third = release("third")
    service.until(lambda: service.all_run(third), 120)
    service.faults.clear()
    service.wanted = NEW
    service.until(lambda: service.all_run(NEW), 120)


def test_who_changes_the_stack_file_half_way_is_followed() -> None:
    service = Service(10, 14)
    service.wanted = NEW
    service.until(lambda: len(service.memory.rollout.proven) >= 3, 120)
    service.least = 10**9
    service.wanted = OLD
    service.until(lambda: service.all_run(OLD), 120)
    assert share(service) >= 0.9
    assert service.messages == []
    assert service.memory.rollout.refused == ""


def test_a_release_that_breaks_late_goes_back_from_all() -> None:
    service = Service(10, 14)
    service.wanted = NEW
    service.until(lambda: len(service.memory.rollout.proven) >= 4, 120)
    service.faults[NEW.version] = "crashes"
    service.until(lambda: service.memory.rollout.refused == NEW.version, 60)
    service.until(lambda: service.all_run(OLD), 60)
    assert [key for key in service.messages if key.startswith(TAKEN_BACK)]


def test_without_room_for_one_more_a_small_group_waits_and_says_so() -> None:
    service = Service(4, 4)
    service.wanted = NEW
    service.play(100)
    assert {one.runs for one in service.instances.values()} == {OLD}
    assert service.messages == [WAITS]
    service.maximum = 5
    service.until(lambda: service.all_run(NEW), 120)


def test_the_mend_of_a_release_that_crashes_everywhere_is_rolled_out() -> None:
    service = Service(6, 8, faults={OLD.version: "crashes"})
    service.play(30)
    service.wanted = NEW
    service.until(lambda: service.all_run(NEW), 120)


def test_a_broker_that_is_down_is_not_blamed_on_the_release() -> None:
    service = Service(6, 8, faults={OLD.version: "finishes nothing", NEW.version: "finishes nothing"})
    service.play(30)
    service.wanted = NEW
    service.play(60)
    assert service.memory.rollout.refused == ""
    assert len([one for one in service.instances.values() if one.runs == NEW]) <= 1
    service.faults.clear()
    service.until(lambda: service.all_run(NEW), 180)


def test_instances_that_are_lost_meanwhile_start_from_what_has_proved_itself() -> None:
    service = Service(8, 12)
    service.wanted = NEW
    service.until(lambda: bool(service.memory.rollout.asked), 60)
    assert service.row.of("i-new") == OLD
    service.lose(sorted(service.instances)[-1])
    service.until(lambda: len(service.memory.rollout.proven) >= 6, 120)
    assert service.row.of("i-new") == NEW
    service.until(lambda: service.all_run(NEW), 60)


def test_nothing_begins_where_workers_may_not_be_started_anew() -> None:
    service = Service(4, 6)
    service.settings = replace(service.settings, most_at_once=0)
    service.wanted = NEW
    service.play(60)
    assert {one.runs for one in service.instances.values()} == {OLD}
    assert service.row.of("i-new") == NEW


def test_a_memory_that_is_lost_takes_what_is_wanted_for_good() -> None:
    service = Service(4, 6)
    service.memory = replace(service.memory, rollout=Rollout())
    service.play(2)
    assert service.memory.rollout.stable == OLD


def test_a_release_that_swallows_requests_goes_back_though_none_ever_waits() -> None:
    service = Service(8, 16, faults={NEW.version: "finishes nothing"}, waiting=0)
    service.wanted = NEW
    tried: set[str] = set()
    for _ in range(60):
        service.play(1)
        tried |= {name for name, one in service.instances.items() if one.runs == NEW}
    assert service.memory.rollout.refused == NEW.version
    assert len(tried) == 1
    assert service.all_run(OLD)


def test_who_hangs_unseen_is_neither_counted_on_nor_the_one_that_tries() -> None:
    service = Service(2, 3, waiting=0)
    hung, well = sorted(service.instances)
    service.hangs.add(hung)
    service.play(20)
    service.wanted = NEW
    # The newcomer hangs, too: the only one that serves goes on.
    service.hangs |= {f"i-{n:08x}" for n in range(3, 30)}
    service.play(30)
    assert service.served == 1
    assert not service.row.on
    service.hangs = {hung}
    service.until(lambda: service.instances[well].runs == NEW, 60)
    assert service.memory.rollout.refused == ""
    assert not service.robbed


def test_a_release_that_fails_the_few_requests_it_had_has_not_proved_itself() -> None:
    service = Service(2, 4, waiting=0, each=0.001)
    service.faults[NEW.version] = "fails all"
    service.wanted = NEW
    service.until(lambda: NEW in [one.runs for one in service.instances.values()], 40)
    # Nobody else has one: it cannot be said that it should have had more.
    service.hangs = {one.id for one in service.instances.values() if one.runs != NEW}
    service.play(60)
    stable = service.memory.rollout.stable
    assert stable is not None
    assert (stable.version, service.memory.rollout.proven) == (OLD.version, {})
    service.until(lambda: service.memory.rollout.refused == NEW.version, 200)


@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [(0.0, 0.55, True), (0.2, 0.55, True), (0.3, 0.55, False), (0.0, 0.45, False)],
)
def test_a_release_that_fails_most_requests_is_bad_unless_half_as_many_failed_before(
    before: float, now: float, is_refused: bool
) -> None:
    service = Service(4, 6)
    service.failing = {OLD.version: before, NEW.version: now}
    service.wanted = NEW
    service.until(lambda: NEW in [one.runs for one in service.instances.values()], 40)
    service.play(3)  # one instance tries it, the others still have the old one
    assert (service.memory.rollout.refused == NEW.version) is is_refused


@pytest.mark.parametrize("fault", ["well", "fails all"])
def test_what_nobody_asked_anything_is_everywhere_and_can_still_go_back(fault: Fault) -> None:
    service = Service(2, 4, waiting=0, each=0.0)
    service.faults[NEW.version] = fault
    service.wanted = NEW
    service.until(lambda: {one.runs for one in service.instances.values()} == {NEW}, 120)
    service.play(120)
    # Nothing is left to do: no surge, and nobody is told that it makes no way.
    assert service.last is not None
    assert (service.last.rollout.rolling, service.messages) == (None, [])
    assert service.memory.rollout.stable == OLD
    service.each = 0.5
    service.play(40)
    left = OLD if fault == "fails all" else NEW
    assert service.memory.rollout.stable == left
    assert {one.runs for one in service.instances.values()} == {left}
