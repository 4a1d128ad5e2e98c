"""The invariants of the controller, for every policy that a stack may choose and any state it may find."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from contracts.group.control import Control, Mode
from contracts.group.replacement_requests import ReplacementRequest
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory, apply_events, dump, parse
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from lambdas.core.deadline.record import JobRecord
from lambdas.core.events import Event, InterruptionNotice, RebalanceRecommendation, WakeUp
from lambdas.core.model import GroupRole, Observation, PurchaseOption, SetDesired, TerminateInstances, slots
from tests.core.build import NOW, carried_out, desired, refusal, released, spot, taken
from tests.core.build import group as make_group
from tests.core.states import WITHHOLDING, memories, observations, policies


@given(observations(), policies, memories)
def test_the_base_is_always_held(state: Observation, policy, memory) -> None:
    decision = decide(state, policy, memory, NOW)
    after = carried_out(state, decision)
    asked, option = desired(decision.actions, GroupRole.PRIMARY), PurchaseOption.ON_DEMAND
    assert asked is None or asked >= state.group.config.base
    before, left = (
        slots(i for i in seen.instances_of(GroupRole.PRIMARY) if i.purchase_option is option)
        for seen in (state, after)
    )
    assert left >= min(before, state.group.config.base)


@given(observations(), policies, memories)
def test_nothing_is_requested_above_the_maximum(state: Observation, policy, memory) -> None:
    decision = decide(state, policy, memory, NOW)
    after = carried_out(state, decision)
    live = slots(after.instances_of(GroupRole.PRIMARY))
    booked = max(after.fallback_desired, slots(after.instances_of(GroupRole.FALLBACK)))
    assert live + booked <= max(state.group.maximum, slots(state.instances))
    if after.primary_desired > max(live, state.primary_desired):  # then AWS launches
        # On-demand that runs already is not sent home for the base before it may go.
        running = slots(after.instances_of(GroupRole.FALLBACK))
        assert after.primary_desired + booked <= max(state.group.maximum, state.group.config.base + running)
    for action in decision.actions:
        # Ahead of a release it may be raised to what stands already, and that launches nothing.
        if isinstance(action, SetDesired):
            held = slots(state.instances_of(action.group_role))
            before = state.desired_capacity(action.group_role)
            # Asked for in any case.
            base = state.group.config.base + held - slots(after.instances_of(action.group_role))
            assert action.capacity <= max(state.group.maximum, held, before, base)


@given(observations(), policies, memories)
def test_no_serving_instance_is_terminated_before_its_successor_is_up(
    state: Observation, policy, memory
) -> None:
    decision = decide(state, policy, memory, NOW)
    situation = decision.state
    lasting = situation.stable(state.instances)
    if not state.group.config.break_before_make:
        assert all(i.ready_since is not None for i in lasting)
    gone = released(decision.actions)
    left = tuple(i for i in lasting if i.id not in gone)
    assert left == lasting or slots(left) >= situation.group.target


@given(observations(), policies, memories)
def test_a_terminated_instance_is_not_launched_again(state: Observation, policy, memory) -> None:
    """A bigger instance than the surplus stays: without it the side would lack slots."""
    decision = decide(state, policy, memory, NOW)
    after = carried_out(state, decision)
    releases = [action for action in decision.actions if isinstance(action, TerminateInstances)]
    # Who is replaced at a wish is to be launched again.
    requested = decision.state.replacements.keys()
    for side in {release.group_role for release in releases if requested.isdisjoint(release.instance_ids)}:
        assert slots(after.instances_of(side)) >= after.desired_capacity(side)


@given(observations(), policies, memories)
def test_aws_never_picks_the_victim(state: Observation, policy, memory) -> None:
    live = {side: slots(state.instances_of(side)) for side in GroupRole}
    for action in decide(state, policy, memory, NOW).actions:
        if isinstance(action, SetDesired):
            before = state.desired_capacity(action.group_role)
            assert action.capacity >= min(live[action.group_role], before)


@given(observations(), policies, memories)
def test_a_second_run_on_the_same_state_does_nothing(state: Observation, policy, memory) -> None:
    first = decide(state, policy, memory, NOW)
    # AWS has taken the requests; the released instances still show, with the capacity that goes with them.
    assert decide(taken(state, first), policy, parse(dump(first.memory)), NOW).actions == ()


@given(observations(), policies, memories)
def test_repeated_runs_converge(state: Observation, policy, memory) -> None:
    for _ in range(4):
        decision = decide(state, policy, memory, NOW)
        state, memory = carried_out(state, decision), decision.memory
    assert decide(state, policy, memory, NOW).actions == ()


def replaced(state: Observation, memory: Memory, round_: int) -> Observation:
    """Return what AWS makes of it with capacity rebalancing: successors for those at risk or doomed.

    Each is as large as the largest that the group has.
    """
    marked = memory.at_risk.keys() | memory.termination_deadlines.keys()
    staying = (i for i in state.instances_of(GroupRole.PRIMARY) if i.id not in marked)
    missing = state.primary_desired - slots(staying)
    size = max((i.slots for i in state.instances), default=1)
    launched = (
        replace(spot(f"new-{round_}-{n}", ready=False, age=0.0), slots=size)
        for n in range(-(-missing // size))
    )
    return replace(state, instances=(*state.instances, *launched))


REPLACED = Observation(
    make_group("inference", 2, 7, deadline=NOW + 7200),
    2,
    0,
    (replace(spot("primary-0"), slots=2),),
    (refusal(WITHHOLDING[2], GroupRole.FALLBACK),),
    replacement_requests=(ReplacementRequest("primary-0", int(NOW), "xid"),),
)
"""One Spot Instance that is to be replaced; On-Demand is refused."""
NO_TIME_FOR_SPOT = Memory(
    job=JobRecord(step=362, steps=1000, reported_at=NOW - 30, rate=1.0, best_rate=1.0),
    at_risk={"primary-0": NOW},
)


@given(observations(), policies, memories)
@example(REPLACED, ByDeadline(), NO_TIME_FOR_SPOT)
def test_a_booting_successor_of_an_instance_at_risk_is_never_terminated(
    state: Observation, policy, memory
) -> None:
    cut_short = []
    for round_ in range(8):
        decision = decide(state, policy, memory, NOW)
        memory = decision.memory
        cut_short.append([i for i in released(decision.actions) if i.startswith("new-")])
        state = replaced(carried_out(state, decision), memory, round_)
    assert cut_short[3:] == [[]] * 5


@given(observations(), policies, memories)
def test_one_run_covers_every_shortage_within_the_maximum(state: Observation, policy, memory) -> None:
    group = state.group
    blocked = any(
        r.group_role is GroupRole.PRIMARY and r.kind.withholds_on_demand for r in state.launch_failures
    )
    dateless = policy.name == "deadline" and not group.config.deadline  # no stack has that
    if not group.fallback or blocked or dateless:
        return
    decision = decide(state, policy, memory, NOW)
    after = carried_out(state, decision)
    situation = decision.state
    standby = situation.stable(situation.primary)  # where one works at a time
    serving = slots(i for i in situation.primary if situation.is_ready(i) or i in standby)
    primary, going = slots(state.instances_of(GroupRole.PRIMARY)), 0
    if situation.replacements:
        # Who is replaced has its room until it is gone.
        primary = slots(after.instances_of(GroupRole.PRIMARY))
        going = slots(i for i in state.instances if i.id in released(decision.actions))
    room = max(0, group.maximum - max(group.config.base, primary) - going)
    later = decision.next_run_at is not None  # a policy may start later, and says when
    booked = max(after.fallback_desired, slots(after.instances_of(GroupRole.FALLBACK)))
    assert later or serving + booked >= min(situation.group.target, serving + room)


@given(observations(), policies, memories, st.sampled_from(WITHHOLDING))
def test_limits_and_errors_never_buy_on_demand(state: Observation, policy, memory, message: str) -> None:
    """What they withhold has no successor; what serves has the cover of a group that wants no more."""
    staying = tuple(i for i in state.instances if i.deadline is None and i.ready_since is not None)
    group, serving = state.group, slots(i for i in staying if i.group_role is GroupRole.PRIMARY)
    refused = Observation(group, group.target, state.fallback_desired, staying, (refusal(message),))
    content = replace(
        refused,
        group=replace(group, target=min(group.target, max(serving, group.config.base))),
        launch_failures=(),
    )
    after, stable = (carried_out(seen, decide(seen, policy, memory, NOW)) for seen in (refused, content))
    # Ahead of a release it may be raised to what stands already, and that launches nothing.
    held = max(state.fallback_desired, slots(refused.instances_of(GroupRole.FALLBACK)))
    assert after.fallback_desired <= max(held, stable.fallback_desired)


@given(observations(), policies, memories)
def test_pause_means_pause(state: Observation, policy, memory) -> None:
    paused = Observation(
        make_group("g", state.group.target, state.group.maximum, control=Control(Mode.PAUSED)),
        state.primary_desired,
        state.fallback_desired,
        state.instances,
        state.launch_failures,
    )
    assert decide(paused, policy, memory, NOW).actions == ()


events = st.lists(
    st.one_of(
        st.builds(InterruptionNotice, st.sampled_from("abcd"), st.sampled_from([NOW + 60, NOW + 120])),
        st.builds(RebalanceRecommendation, st.sampled_from("abcd")),
        st.builds(WakeUp, st.just("Scheduled Event")),
    ),
    max_size=8,
)


@given(events, st.randoms(use_true_random=False))
def test_repeated_and_reordered_events_leave_the_same_memory(
    reporting: list[Event], rng: random.Random
) -> None:
    again = [*reporting, *reporting[: len(reporting) // 2]]
    rng.shuffle(again)
    assert dump(apply_events(Memory(), again, NOW)) == dump(apply_events(Memory(), reporting, NOW))
