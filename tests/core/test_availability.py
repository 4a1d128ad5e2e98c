"""The rules of the availability checker, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.group.control import Control, Mode
from contracts.group.replacement_requests import ReplacementRequest
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory, apply_events
from lambdas.core.capacity.policies import NAMES, build
from lambdas.core.events import InterruptionNotice, RebalanceRecommendation
from lambdas.core.model import Alarm, GroupRole, SetDesired, TerminateInstances
from tests.core.build import (
    NOW,
    carried_out,
    desired,
    group,
    observe,
    on_demand,
    refusal,
    released,
    run,
    spot,
)

CAPACITY = "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity."
LIMIT = "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded."


def test_a_refused_spot_request_starts_on_demand_for_what_is_missing() -> None:
    decision = run(observe(spot("a"), spot("b"), spot("c"), refusals=(refusal(CAPACITY),)))
    assert decision.actions == (SetDesired(GroupRole.FALLBACK, 1, decision.reason),)
    assert "target 4, 3 primary stable" in decision.reason


def test_a_notice_starts_on_demand_while_the_interrupted_instance_still_works() -> None:
    interrupted = spot("a", deadline=NOW + 120)
    decision = run(observe(interrupted, spot("b"), spot("c"), spot("d")))
    assert desired(decision.actions, GroupRole.FALLBACK) == 1
    assert decision.state.ready == 4


def test_a_notice_known_only_from_its_event_counts_the_same() -> None:
    memory = apply_events(Memory(), [InterruptionNotice("a", NOW + 120)], NOW)
    decision = run(observe(spot("a"), spot("b"), spot("c"), spot("d")), memory)
    assert desired(decision.actions, GroupRole.FALLBACK) == 1


def test_on_demand_stays_until_the_spot_successor_is_ready_not_merely_launched() -> None:
    booting = observe(spot("a", ready=False, age=60), spot("b"), spot("c"), spot("d"), on_demand("o"))
    assert run(booting).actions == ()
    booted = observe(spot("a"), spot("b"), spot("c"), spot("d"), on_demand("o"))
    assert released(run(booted).actions) == ("o",)


def test_instances_that_do_not_serve_yet_are_terminated_first() -> None:
    state = observe(
        spot("a"), spot("b"), spot("c"), on_demand("old"), on_demand("boots", ready=False, age=20)
    )
    assert released(run(state).actions) == ("boots",)


def test_a_desired_capacity_includes_terminations_that_are_not_visible() -> None:
    """Another copy may be about to let them go, or has failed to: below what lives AWS would pick."""
    state = observe(*[spot(f"s{n}") for n in range(3)], *[on_demand(f"o{n}") for n in range(3)])
    memory = Memory(termination_requests={f"o{n}": NOW for n in range(3)})
    assert desired(run(state, memory).actions, GroupRole.FALLBACK) == 1 + 3


def test_a_terminated_instance_is_not_counted_and_its_notice_launches_nothing() -> None:
    state = observe(spot("a"), spot("b"), spot("c"), spot("d"), on_demand("o"))
    first = run(state)
    memory = apply_events(first.memory, [InterruptionNotice("o", NOW + 120)], NOW)
    assert run(state, memory).actions == ()
    assert run(carried_out(state, first), memory).actions == ()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("You have exceeded your vCPU limit. VcpuLimitExceeded", "primary-limit"),
        ("You are not authorized to perform this operation. UnauthorizedOperation", "primary-permission"),
        ("The image id '[ami-1]' does not exist.", "primary-configuration"),
    ],
)
def test_a_refusal_that_buying_cannot_mend_raises_an_alarm_once_instead(message: str, kind: str) -> None:
    state = observe(spot("a"), spot("b"), refusals=(refusal(message),))
    first = run(state)
    assert first.actions == (Alarm(kind, message),)
    assert run(state, first.memory).actions == ()
    # Without a new text nothing has changed: the cause is remembered, and raised once.
    silent = run(observe(spot("a"), spot("b")), first.memory)
    assert (silent.actions, silent.memory.active_alarms) == ((), first.memory.active_alarms)
    assert run(state, silent.memory).actions == ()


UNKNOWN = "Could not launch Spot Instances. FluxCapacitorDepleted - out of flux"
ON_DEMAND_CAPACITY = "We currently do not have sufficient g5.xlarge capacity. InsufficientInstanceCapacity"


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_failure_buys_on_demand_within_two_passes_and_raises_an_alarm_once(name: str) -> None:
    policy, memory = build(name), Memory()
    seen = observe(spot("a"), spot("b"), refusals=(refusal(UNKNOWN),))
    alarms: list[Alarm] = []
    for pass_ in range(2):
        decision = decide(seen, policy, memory, NOW + 60 * pass_)
        alarms += [action for action in decision.actions if isinstance(action, Alarm)]
        seen, memory = carried_out(seen, decision), decision.memory
    assert seen.fallback_desired >= 2
    assert alarms == [Alarm("primary-unknown", f"unknown failure: {UNKNOWN}")]
    assert decision.reason.endswith(f"; unknown failure: {UNKNOWN}")
    assert "primary:unknown" in memory.active_alarms


@pytest.mark.parametrize(
    ("message", "alarm"),
    [
        (UNKNOWN, Alarm("fallback-unknown", f"unknown failure: {UNKNOWN}")),
        (ON_DEMAND_CAPACITY, Alarm("fallback-capacity", ON_DEMAND_CAPACITY)),
    ],
)
def test_refused_on_demand_is_an_alarm_even_for_lack_of_capacity(message: str, alarm: Alarm) -> None:
    state = observe(spot("a"), fallback_desired=3, refusals=(refusal(message, GroupRole.FALLBACK),))
    assert run(state).actions == (alarm,)


def test_a_failure_that_the_version_before_withheld_buys_on_demand_after_the_update() -> None:
    """It stored an unknown failure as the cause of a configuration alarm."""
    memory = Memory(active_alarms=frozenset({"primary:configuration"}))
    decision = run(observe(spot("a"), spot("b"), refusals=(refusal(UNKNOWN),)), memory)
    assert desired(decision.actions, GroupRole.FALLBACK) == 2
    assert decision.memory.active_alarms == {"primary:unknown"}


def test_a_failure_without_a_message_is_unknown() -> None:
    state = observe(spot("a"), spot("b"), refusals=(refusal(""),))
    assert run(state).actions[0] == Alarm("primary-unknown", "unknown failure: AWS gives no message")


def test_a_quota_does_not_prevent_the_replacement_of_an_interrupted_instance() -> None:
    state = observe(
        spot("a", deadline=NOW + 120), spot("b"), spot("c"), spot("d"), refusals=(refusal(LIMIT),)
    )
    assert desired(run(state).actions, GroupRole.FALLBACK) == 1


def test_a_limit_does_not_take_back_on_demand_that_serves() -> None:
    state = observe(spot("a"), spot("b"), spot("c"), on_demand("o"), refusals=(refusal(LIMIT),))
    assert [type(a) for a in run(state).actions] == [Alarm]


def test_the_maximum_covers_both_groups() -> None:
    tight = group(target=4, maximum=5)
    decision = run(
        observe(
            spot("a", deadline=NOW + 120), spot("b", deadline=NOW + 90), spot("c"), spot("d"), group=tight
        )
    )
    assert desired(decision.actions, GroupRole.FALLBACK) == 1
    empty = run(observe(group=tight, primary_desired=0))
    assert desired(empty.actions, GroupRole.FALLBACK) == 4
    assert desired(empty.actions, GroupRole.PRIMARY) == 1


@pytest.mark.parametrize(("minimum", "lowered"), [(0, 1), (1, 0)])
def test_a_replacement_for_which_there_is_no_room_leaves_the_minimum(minimum: int, lowered: int) -> None:
    """AWS refuses to end an instance and to lower the desired capacity below ``MinSize``."""
    state = observe(spot("a"), on_demand("o"), on_demand("p"), group=group(target=1, maximum=3))
    requests = (ReplacementRequest("a", int(NOW) - 60, "stuck"),)
    actions = run(
        replace(state, bounds={GroupRole.PRIMARY: (minimum, 3)}, replacement_requests=requests)
    ).actions
    ended = [a for a in actions if isinstance(a, TerminateInstances) and a.group_role is GroupRole.PRIMARY]
    assert [(a.instance_ids, a.slots) for a in ended] == [(("a",), lowered)]


def test_a_cold_start_leaves_room_for_the_base_below_the_maximum() -> None:
    empty = run(observe(group=group(target=4, base=3, maximum=5), primary_desired=0))
    assert desired(empty.actions, GroupRole.PRIMARY) == 3
    assert desired(empty.actions, GroupRole.FALLBACK) == 2


def test_the_base_is_held_though_a_large_instance_leaves_it_no_room_below_the_maximum() -> None:
    state = observe(
        replace(on_demand("large"), slots=4), group=group(target=2, base=2, maximum=5), primary_desired=0
    )
    assert desired(run(state).actions, GroupRole.PRIMARY) == 2


def test_an_interrupted_instance_stops_serving_at_its_drain_time_and_the_decision_runs_then() -> None:
    state = observe(
        spot("a", deadline=NOW + 120), spot("b"), spot("c"), spot("d"), group=group(drain_seconds=30)
    )
    before, after = run(state), run(state, now=NOW + 90)
    assert before.next_run_at == NOW + 90
    assert (before.state.ready, after.state.ready) == (4, 3)


def test_scale_in_terminates_selected_instances_and_never_the_base() -> None:
    base = [on_demand(f"base{n}", side=GroupRole.PRIMARY, ready=n > 0) for n in range(2)]
    state = observe(*base, spot("a"), spot("b"), group=group(target=2, base=2), primary_desired=4)
    decision = run(state)
    # Only as many serving instances go as the target can spare, and not the base though one boots.
    assert released(decision.actions) == ("a",)
    assert desired(decision.actions, GroupRole.PRIMARY) is None


def test_the_successor_of_an_instance_at_risk_boots_in_peace_and_then_the_one_at_risk_goes() -> None:
    memory = apply_events(Memory(), [RebalanceRecommendation("a")], NOW)
    others = (spot("a"), spot("b"), spot("c"), spot("d"))
    booting = observe(*others, spot("new", ready=False, age=60))
    assert run(booting, memory).actions == ()
    assert released(run(observe(*others, spot("new")), memory).actions) == ("a",)
    surplus = observe(*others, spot("new", ready=False, age=60), spot("newer", ready=False, age=30))
    assert released(run(surplus, memory).actions) == ("newer",)


def test_unfulfilled_desired_capacity_is_lowered_before_any_termination() -> None:
    state = observe(
        spot("a"), spot("b"), spot("c"), spot("d"), on_demand("o"), on_demand("p"), fallback_desired=5
    )
    actions = run(state).actions
    assert actions[0] == SetDesired(GroupRole.FALLBACK, 2, actions[0].reason)
    assert released(actions) == ("o", "p") or released(actions) == ("p", "o")


def test_pause_does_nothing_and_dry_run_says_what_it_would_do_without_remembering() -> None:
    paused = group(control=Control(Mode.PAUSED))
    assert run(observe(spot("a"), group=paused)).actions == ()
    rehearsed = group(control=Control(Mode.DRY_RUN))
    state = observe(spot("a"), spot("b"), spot("c"), spot("d"), on_demand("o"), group=rehearsed)
    decision = run(state)
    assert released(decision.actions) == ("o",)
    assert decision.memory.termination_requests == {}


def test_manual_mode_sets_the_on_demand_slots_within_the_maximum() -> None:
    manual = group(control=Control(Mode.MANUAL, on_demand=2))
    state = observe(spot("a"), spot("b"), spot("c"), spot("d"), group=manual)
    assert desired(run(state).actions, GroupRole.FALLBACK) == 2
    greedy = group(control=Control(Mode.MANUAL, on_demand=99))
    assert desired(run(observe(spot("a"), spot("b"), group=greedy)).actions, GroupRole.FALLBACK) == 6


def test_a_group_without_fallback_never_asks_for_one() -> None:
    alone = group(fallback=False)
    assert run(observe(spot("a"), group=alone)).actions == ()
