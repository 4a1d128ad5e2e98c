"""Each verdict, what follows from it, and what must not follow from what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from tests.health.scenes import (
    START,
    Play,
    begun,
    crashing,
    idle,
    missing,
    over,
    pulse,
    restarted,
    silent,
    stuck,
    wished,
    xid,
)

TEN = tuple(f"i-{n:02}" for n in range(10))
Broken = Callable[[Worker], Worker | None]


def play(broken: Broken | None = None, ill: tuple[str, ...] = ("i-03",)) -> Play:
    made = Play().add(*TEN)
    made.breaks = dict.fromkeys(ill, broken) if broken else {}
    return made


def test_a_group_that_is_well_is_let_alone_and_nobody_is_told() -> None:
    seen = play().look(60)
    assert (wished(seen), restarted(seen), begun(seen)) == ({}, [], [])
    assert seen[-1].memory.watches == {}


@pytest.mark.parametrize(
    ("broken", "why", "minutes"),
    [(silent(), "silent", 5), (xid, "xid", 1), (missing, "missing", 7), (crashing(), "crashing", 8)],
)
def test_an_instance_that_a_restart_does_not_mend_is_replaced(broken: Broken, why: str, minutes: int) -> None:
    seen = play(broken).look(minutes)
    assert wished(seen) == {"i-03": why}
    assert restarted(seen) == []
    assert begun(seen) == []
    assert len({wish.at for decision in seen for wish in decision.wishes}) == 1


@pytest.mark.parametrize(("broken", "why"), [(stuck, "stuck"), (idle, "idle-gpu")])
def test_a_worker_is_restarted_first_and_its_instance_replaced_where_that_does_not_help(
    broken: Broken, why: str
) -> None:
    group = play(broken)
    seen = group.look(17)
    assert restarted(seen) == ["i-03/0"]
    assert wished(seen) == {}
    seen = group.look(20)
    assert restarted(seen) == []
    assert wished(seen) == {"i-03": why}


def test_a_restart_that_helps_is_all() -> None:
    group = play(stuck)
    assert restarted(group.look(17)) == ["i-03/0"]
    group.breaks.clear()
    seen = group.look(60)
    assert (restarted(seen), wished(seen)) == ([], {})


@pytest.mark.parametrize("broken", [stuck, idle])
@pytest.mark.parametrize("waiting", [0, None])
def test_a_worker_without_requests_or_a_queue_that_nobody_knows_is_not_stuck(
    broken: Broken, waiting: int | None
) -> None:
    group = play(lambda worker: pulse(worker, done=7, rate=0.0), ill=TEN)
    group.breaks["i-03"] = broken
    group.waiting = waiting
    assert restarted(group.look(60)) == []


@pytest.mark.parametrize("waiting", [0, None])
@pytest.mark.parametrize(("each", "found"), [(0.013, ["i-03/0"]), (0.01, [])])
def test_who_ends_nothing_while_others_end_ten_is_stuck_though_none_waits(
    each: float, found: list[str], waiting: int | None
) -> None:
    group = play(lambda worker: pulse(worker, rate=each), ill=TEN)
    group.breaks["i-03"] = stuck
    group.waiting = waiting
    assert restarted(group.look(17)) == found


def test_an_old_word_of_the_queue_is_not_believed() -> None:
    group = play(stuck)
    backlog = group.sight().backlog
    assert backlog is not None
    assert group.sight().requests_wait
    assert not replace(group.sight(), backlog=replace(backlog, at=group.now - 200)).requests_wait
    assert not replace(group.sight(), backlog=replace(backlog, at=group.now + 3600)).requests_wait


def test_one_slow_request_among_others_is_not_stuck() -> None:
    group = play(lambda worker: pulse(worker, done=int((worker.heartbeat - START) / 840), rate=0.0))
    assert restarted(group.look(120)) == []


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
def test_a_worker_with_a_wrong_clock_is_told_and_let_alone(ahead: float) -> None:
    group = play(lambda worker: replace(worker, heartbeat=worker.heartbeat + ahead))
    seen = group.look(60)
    assert (wished(seen), restarted(seen)) == ({}, [])
    assert begun(seen) == ["clock/aws"]


def test_a_dead_worker_whose_clock_was_ahead_is_silent_all_the_same() -> None:
    assert wished(play(silent(START + 7200)).look(5)) == {"i-03": "silent"}


def test_an_old_version_is_told_once_it_is_no_roll_out() -> None:
    group = play()
    group.look()
    group.breaks = dict.fromkeys(TEN[:7], lambda worker: pulse(worker, version="v2"))
    assert begun(group.look(119)) == []
    seen = group.look(120)
    assert begun(seen) == ["old-version/aws"]
    assert wished(seen) == {}
    group.breaks = dict.fromkeys(TEN, lambda worker: pulse(worker, version="v2"))
    assert over(group.look(20)) == ["old-version/aws"]


def test_an_instance_may_take_its_grace_and_twice_what_boots_take() -> None:
    group = play()
    group.add("i-new", age=0.0)
    group.breaks = {"i-new": missing}
    assert wished(group.look(19)) == {}
    assert wished(group.look(2)) == {"i-new": "missing"}
    slow = play()
    slow.boot = 1200.0
    slow.add("i-new", age=0.0)
    slow.breaks = {"i-new": missing}
    assert wished(slow.look(55)) == {}


@pytest.mark.parametrize("broken", [silent(), xid, missing, crashing(), stuck])
def test_who_drains_is_doomed_or_released_is_never_wished_for(broken: Broken) -> None:
    group = play(broken)
    group.hosts["i-03"] = replace(group.hosts["i-03"], spared="draining")
    assert wished(group.look(60)) == {}
    assert restarted(group.look(60)) == []


def test_a_wish_ends_with_its_cause_with_the_instance_and_with_its_drain() -> None:
    for end in ("recovers", "goes", "drains"):
        group = play(xid)
        assert wished(group.look(2)) == {"i-03": "xid"}
        if end == "recovers":
            group.breaks.clear()
        elif end == "goes":
            del group.hosts["i-03"]
        else:
            group.hosts["i-03"] = replace(group.hosts["i-03"], spared="draining")
        assert wished(group.look(1)) == {}, end


def test_rows_that_make_no_sense_hide_nobody_who_would_be_replaced() -> None:
    group = play(missing)
    group.hosts["i-03"] = replace(group.hosts["i-03"], unclear=True)
    assert wished(group.look(60)) == {}


def test_on_premises_is_restarted_or_told_and_never_replaced() -> None:
    for broken, key in ((silent(), "silent"), (xid, "xid"), (crashing(), "crashing")):
        group = play().add("gpu-1", "gpu-2", "gpu-3", on_premises=True)
        group.breaks = {"gpu-2": broken}
        seen = group.look(60)
        assert (wished(seen), restarted(seen)) == ({}, [])
        assert begun(seen) == [f"{key}/on-premises"]
    group = play().add("gpu-1", "gpu-2", "gpu-3", on_premises=True)
    group.breaks = {"gpu-2": stuck}
    seen = group.look(120)
    assert (wished(seen), restarted(seen)) == ({}, ["gpu-2/0"])
    assert begun(seen) == ["stuck/on-premises"]


def test_where_people_have_taken_over_nothing_is_begun() -> None:
    group = play(xid)
    group.may_act = False
    assert wished(group.look(30)) == {}


def test_nothing_at_once_means_nothing_is_done() -> None:
    group = play(xid)
    group.settings = HealthSettings(most_at_once=0)
    seen = group.look(30)
    assert wished(seen) == {}
    assert begun(seen) == ["budget"]


def test_of_many_that_are_ill_so_many_are_replaced_at_once_as_may_be_and_the_rest_waits() -> None:
    group = play(xid, TEN[:4])
    seen = group.look(60)
    assert {len(decision.wishes) for decision in seen} == {2}
    assert begun(seen) == ["budget"]
    for one in TEN[:2]:  # the controller has replaced them
        del group.hosts[one]
    assert list(wished(group.look(1))) == ["i-02"]  # an eighth of eight, and one at least
