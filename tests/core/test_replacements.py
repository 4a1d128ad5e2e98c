"""Who is replaced whatever the plan: whom AWS retires, who never reports; and room for a roll-out's batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.group.control import Control, Mode
from contracts.group.rollout_request import RolloutRequest
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import (
    MARK_RETENTION_SECONDS,
    MAX_BOOT_SECONDS,
    RETIREMENT_LEAD_SECONDS,
    Memory,
    apply_events,
)
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.events import ScheduledChange
from lambdas.core.model import Alarm, GroupRole, Instance, Observation, SetDesired
from lambdas.core.rollout.surge import MAX_AGE_SECONDS, with_surge
from tests.core.build import NOW, alarms, carried_out, desired, group, observe, on_demand, released, run, spot

FOUR = ("a", "b", "c", "d")


def rolls(seen: Observation, surge: int = 1, *restarting: str, at: float = NOW - 60) -> Observation:
    return replace(seen, rollout_request=RolloutRequest(int(at), surge, restarting))


def wanted(seen: Observation) -> dict[GroupRole, int]:
    decision = run(seen)
    assert released(decision.actions) == ()
    return {a.group_role: a.capacity for a in decision.actions if isinstance(a, SetDesired)}


def test_a_surge_is_launched_as_spot_and_on_demand_as_the_policy_says() -> None:
    seen = observe(*map(spot, FOUR))
    assert wanted(seen) == {}
    assert wanted(rolls(seen, 1)) == {GroupRole.PRIMARY: 5, GroupRole.FALLBACK: 1}


def test_a_surge_stays_below_the_maximum() -> None:
    seen = observe(*map(spot, FOUR), group=group(maximum=5))
    assert wanted(rolls(seen, 3)) == {GroupRole.FALLBACK: 1}
    assert with_surge(rolls(seen, 3), NOW).group.target == 5


def test_a_restarting_instance_gets_no_successor() -> None:
    five = [*map(spot, FOUR), spot("e", ready=False)]
    seen = observe(*five, primary_desired=5)
    assert wanted(rolls(seen, 1, "e")) == {}
    assert wanted(rolls(seen, 1)) == {GroupRole.FALLBACK: 1}


def test_its_word_is_taken_for_a_fifth_and_no_more() -> None:
    away = [spot(name, ready=False) for name in FOUR]
    seen = observe(*away, spot("e"), primary_desired=5)
    eased_ = with_surge(rolls(seen, 0, *FOUR), NOW)
    assert [i.id for i in eased_.instances if i.is_reporting] == ["a", "e"]


@pytest.mark.parametrize("at", [NOW - MAX_AGE_SECONDS - 1, NOW + 120])
def test_what_is_old_or_of_another_clock_is_not_followed(at: float) -> None:
    seen = observe(*map(spot, FOUR))
    assert wanted(rolls(seen, 1, at=at)) == {}


def test_a_group_that_people_steer_is_theirs() -> None:
    seen = observe(*map(spot, FOUR), group=group(control=Control(Mode.MANUAL, 0)))
    assert wanted(rolls(seen, 2)) == {}


def test_once_it_is_over_one_that_is_too_many_goes() -> None:
    five = [*map(spot, FOUR), spot("e", age=900.0)]
    assert released(run(observe(*five, primary_desired=5)).actions) == ("e",)


RETIRES = NOW + 14 * 86_400


def reporting(name: str, deadline: float = RETIRES) -> Memory:
    return apply_events(Memory(), [ScheduledChange((name, "i-foreign"), deadline)], NOW)


def fleet(*others: Instance) -> tuple[Instance, ...]:
    return *map(spot, FOUR), *others


def test_a_retirement_far_ahead_buys_nothing_and_is_remembered() -> None:
    decision = run(observe(*fleet()), reporting("a"))
    assert decision.actions == ()
    assert decision.memory.retiring == {"a": RETIRES}  # the account's other instances are not ours


@pytest.mark.parametrize("name", NAMES)
def test_a_retiring_instance_is_terminated_after_its_successor_is_launched(name: str) -> None:
    policy, at = build(name), RETIRES - RETIREMENT_LEAD_SECONDS
    first = decide(observe(*fleet()), policy, reporting("a"), at)
    assert desired(first.actions, GroupRole.FALLBACK) == 1
    served = observe(*fleet(on_demand("o")), fallback_desired=1)
    second = decide(served, policy, first.memory, at + 120)
    assert released(second.actions) == ("a",)
    after = carried_out(served, second)
    # Spot is asked for in its place.
    assert after.primary_desired == 4
    back = observe(*after.instances, spot("e"), fallback_desired=1)
    assert released(decide(back, policy, second.memory, at + 400).actions) == ("o",)


def test_a_retiring_instance_is_not_terminated_before_another_serves() -> None:
    booting = observe(*fleet(on_demand("o", ready=False)), fallback_desired=1)
    assert released(run(booting, reporting("a"), RETIRES - 600).actions) == ()


def test_a_retirement_that_did_not_come_is_forgotten_and_is_no_loss_of_a_pool() -> None:
    memory = run(observe(*fleet()), reporting("a"), RETIRES - 60).memory
    gone = run(observe(*fleet()[1:]), memory, RETIRES).memory
    assert gone.history.losses == 0
    stayed = run(observe(*fleet()), memory, RETIRES + MARK_RETENTION_SECONDS + 1).memory
    assert (stayed.retiring, stayed.termination_deadlines) == ({}, {})


def silent(name: str, age: float = MAX_BOOT_SECONDS) -> tuple[Instance, Memory]:
    return spot(name, ready=False, age=age), Memory(not_reporting={name: NOW - age})


def test_an_instance_that_never_reports_is_replaced_with_one_alarm() -> None:
    unresponsive, memory = silent("m")
    state = observe(spot("a"), spot("b"), spot("c"), unresponsive, on_demand("o"))
    decision = run(state, memory)
    alarm, raised, _ = decision.actions
    assert alarm == Alarm("silent", "no worker reports for 30 minutes: m")
    assert raised == SetDesired(GroupRole.PRIMARY, 5, decision.reason)  # the release takes one off
    assert released(decision.actions) == ("m",)
    assert carried_out(state, decision).primary_desired == 4
    again = run(replace(state, instances=(*state.instances[:3], state.instances[4])), decision.memory)
    assert alarms(again) == []


def test_a_boot_has_the_time_that_a_boot_may_take() -> None:
    unresponsive, memory = silent("m", MAX_BOOT_SECONDS - 1)
    decision = run(observe(spot("a"), spot("b"), spot("c"), unresponsive, on_demand("o")), memory)
    assert decision.actions == ()
    assert decision.memory.not_reporting == memory.not_reporting


def test_if_no_instance_reports_none_is_terminated() -> None:
    state = observe(*(spot(name, ready=False) for name in "abcd"), fallback_desired=4)
    decision = run(state, Memory(not_reporting=dict.fromkeys("abcd", NOW - 2 * MAX_BOOT_SECONDS)))
    reason = "no worker reports for 30 minutes: a, b, c, d"
    withheld = "most or all of the group: no instance is replaced"
    assert decision.actions == (Alarm("silent", f"{reason}; {withheld}"),)


@pytest.mark.parametrize(("mutes", "going"), [(1, 1), (2, 2), (3, 0), (4, 0)])
def test_if_most_do_not_report_the_cause_is_shared_and_none_is_terminated(mutes: int, going: int) -> None:
    names = "abcd"
    state = observe(*(spot(name, ready=name not in names[:mutes]) for name in names), fallback_desired=4)
    decision = run(state, Memory(not_reporting=dict.fromkeys(names[:mutes], NOW - MAX_BOOT_SECONDS)))
    assert len(released(decision.actions)) == going
    assert alarms(decision) == ["silent"]


@pytest.mark.parametrize(("others", "going"), [("fell silent", 0), ("boot", 1), ("serve", 1)])
def test_a_recently_lost_heartbeat_counts_for_a_shared_cause_and_a_boot_does_not(
    others: str, going: int
) -> None:
    """One of four is overdue; two more are silent for a minute, or were never reporting yet."""
    unresponsive, more = spot("m", ready=False), [spot(name, ready=others == "serve") for name in "ab"]
    memory = Memory(
        not_reporting={"m": NOW - MAX_BOOT_SECONDS}
        | ({} if others == "serve" else dict.fromkeys("ab", NOW - 60)),
        booted=frozenset("ab") if others == "fell silent" else frozenset(),
    )
    decision = run(observe(unresponsive, *more, spot("c"), fallback_desired=4), memory)
    assert len(released(decision.actions)) == going


@pytest.mark.parametrize("falls", [True, False])
def test_the_timeout_starts_when_reports_stop(falls: bool) -> None:
    before = run(observe(*fleet()), Memory()).memory
    unresponsive = replace(spot("a"), ready_since=None) if falls else spot("a")
    after = run(observe(unresponsive, *fleet()[1:]), before, NOW + 30).memory
    assert after.not_reporting == ({"a": NOW + 30} if falls else {})


def test_an_unresponsive_instance_of_the_base_stays_with_an_alarm() -> None:
    base = on_demand("base", side=GroupRole.PRIMARY, ready=False, age=MAX_BOOT_SECONDS)
    state = observe(base, spot("a"), spot("b"), spot("c"), on_demand("o"), group=group(base=1))
    decision = run(state, Memory(not_reporting={"base": NOW - MAX_BOOT_SECONDS}))
    assert [type(action) for action in decision.actions] == [Alarm]
