"""Whom the health checker wants replaced: whether it is followed, who comes first, and how many at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from contracts.group.control import Control, Mode
from contracts.group.replacement_requests import NOT_SERVING, ReplacementRequest
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import (
    REPLACEMENT_WINDOW_SECONDS,
    Memory,
    dump,
    parse,
    without_failed_request,
)
from lambdas.core.capacity.policies import build
from lambdas.core.capacity.replacements import REPLACEMENT_DIVISOR, REQUEST_SECONDS, filter_requests
from lambdas.core.model import GroupRole, Instance, Observation, TerminateInstances, slots
from tests.core.build import NOW, carried_out, desired, group, observe, on_demand, released, run, spot, taken
from tests.core.states import memories, observations, policies

ALONE = group(fallback=False, maximum=6)


def wishing(state: Observation, *with_requests: str, why: str = "xid") -> Observation:
    return replace(
        state,
        replacement_requests=tuple(ReplacementRequest(name, int(NOW) - 60, why) for name in with_requests),
    )


def four(*others: Instance, **more: Any) -> Observation:
    return observe(*map(spot, "abcd"), *others, **more)


def test_a_serving_instance_is_terminated_once_its_successor_serves() -> None:
    first = run(wishing(four(), "a"))
    assert (desired(first.actions, GroupRole.FALLBACK), released(first.actions)) == (1, ())
    booting = wishing(four(on_demand("o", ready=False)), "a")
    assert run(booting, first.memory).actions == ()
    served = wishing(four(on_demand("o")), "a")
    decision = run(served, first.memory)
    assert released(decision.actions) == ("a",)
    assert "to be replaced: a (xid)" in decision.actions[-1].reason
    assert carried_out(served, decision).primary_desired == 4  # the group fills up with its own spot
    assert run(taken(served, decision), decision.memory).actions == ()


@pytest.mark.parametrize("why", ["stuck", "idle-gpu"])
def test_an_instance_that_does_not_serve_is_terminated_at_once_and_its_successor_requested(why: str) -> None:
    decision = run(wishing(four(), "a", why=why))
    assert released(decision.actions) == ("a",)
    assert carried_out(four(), decision).primary_desired == 4
    assert desired(decision.actions, GroupRole.FALLBACK) == 1


def test_an_instance_that_does_not_report_is_terminated_early_under_any_verdict() -> None:
    state = observe(spot("a", ready=False), spot("b"), spot("c"), spot("d"))
    assert released(run(wishing(state, "a")).actions) == ("a",)
    malformed = replace(
        state, instances=(replace(state.instances[0], has_malformed_records=True), *state.instances[1:])
    )
    assert released(run(wishing(malformed, "a")).actions) == ()
    assert released(run(wishing(malformed, "a", why="stuck")).actions) == ("a",)


def test_without_a_fallback_the_group_itself_launches_the_successor() -> None:
    state = four(group=ALONE)
    first = run(wishing(state, "a"))
    assert (desired(first.actions, GroupRole.PRIMARY), released(first.actions)) == (5, ())
    more = replace(state, primary_desired=5, instances=(*state.instances, spot("e")))
    second = run(wishing(more, "a"), first.memory)
    assert released(second.actions) == ("a",)
    assert carried_out(more, second).primary_desired == 4


def test_at_the_maximum_a_serving_instance_is_not_terminated() -> None:
    full = four(group=replace(ALONE, maximum=4))
    assert run(wishing(full, "a")).actions == ()
    failed = run(wishing(full, "a", why="stuck"))
    assert [type(a) for a in failed.actions] == [TerminateInstances]  # its successor when it is gone
    gone = carried_out(full, failed)
    assert desired(run(gone, failed.memory).actions, GroupRole.PRIMARY) == 4


def test_on_demand_of_the_fallback_is_replaced_by_its_like() -> None:
    state = observe(spot("a"), spot("b"), spot("c"), on_demand("o"))
    first = run(wishing(state, "o"))
    assert (desired(first.actions, GroupRole.FALLBACK), released(first.actions)) == (2, ())
    both = replace(state, fallback_desired=2, instances=(*state.instances, on_demand("p")))
    second = run(wishing(both, "o"), first.memory)
    assert released(second.actions) == ("o",)
    assert carried_out(both, second).fallback_desired == 1
    failed = run(wishing(state, "o", why="stuck"))
    assert carried_out(state, failed).fallback_desired == 1
    assert released(failed.actions) == ("o",)


def test_a_fifth_of_the_group_goes_at_once_and_the_rest_later() -> None:
    state = observe(*(spot(f"i{n}") for n in range(10)), group=group(target=10, maximum=20))
    with_requests = wishing(state, *(f"i{n}" for n in range(10)), why="stuck")
    first = run(with_requests)
    assert released(first.actions) == ("i0", "i1")
    assert run(taken(with_requests, first), first.memory).actions == ()
    left = wishing(carried_out(state, first), *(f"i{n}" for n in range(2, 10)), why="stuck")
    soon = run(left, first.memory, NOW + REPLACEMENT_WINDOW_SECONDS - 1)
    assert released(soon.actions) == ()
    # Of eight.
    assert len(released(run(left, first.memory, NOW + REPLACEMENT_WINDOW_SECONDS + 1).actions)) == 1


def test_a_failed_termination_does_not_count_as_a_replacement() -> None:
    memory = run(wishing(four(), "a", why="stuck")).memory
    assert memory.replacement_times == {"a": NOW}
    assert parse(dump(memory)).replacement_times == {"a": NOW}
    assert without_failed_request(memory, GroupRole.PRIMARY, ["a"]).replacement_times == {}


def test_interrupted_instances_do_not_count_as_replacements() -> None:
    state = observe(spot("a", deadline=NOW + 60), spot("b"), spot("c"), spot("d"), on_demand("o"))
    assert released(run(wishing(state, "a", why="stuck")).actions) == ()


def test_a_request_does_not_affect_the_pools_and_buys_no_cover() -> None:
    policy = build("expected-cost")
    state = four()
    memory = decide(state, policy, Memory(), NOW).memory
    decision = decide(wishing(state, "a"), policy, memory, NOW)
    assert desired(decision.actions, GroupRole.FALLBACK) == 1
    assert decision.memory.termination_deadlines == {}
    assert decision.next_run_at == decide(state, policy, memory, NOW).next_run_at


@pytest.mark.parametrize(
    ("instance", "at", "changes", "ignored"),
    [
        ("z", NOW, {}, "z (not in the group)"),
        ("a", NOW - REQUEST_SECONDS, {}, "a (not from the last 6 hours)"),
        ("a", NOW + 3600, {}, "a (not from the last 6 hours)"),
        ("a", NOW, {"break_before_make": True}, "a (training job)"),
        ("a", NOW, {"control": Control(Mode.MANUAL, 1)}, "a (mode manual)"),
        ("b", NOW, {}, "b (not in the group)"),
    ],
)
def test_ignored_requests_are_reported_in_one_line(
    instance: str, at: float, changes: dict[str, Any], ignored: str
) -> None:
    members = (spot("a"), replace(spot("b"), is_terminating=True))
    found = filter_requests([ReplacementRequest(instance, int(at), "xid")], group(**changes), members, NOW)
    assert found == ((), (f"replacement requests ignored: {ignored}",))


def test_the_base_stays_and_on_demand_above_it_does_not() -> None:
    base = [on_demand(name, side=GroupRole.PRIMARY) for name in "ab"]
    requests = [ReplacementRequest("a", int(NOW), "xid"), ReplacementRequest("b", int(NOW), "xid")]
    assert filter_requests(requests, group(base=2), base, NOW) == (
        (),
        ("replacement requests ignored: a, b (on-demand base)",),
    )
    found, _ = filter_requests(requests, group(base=1), base, NOW)
    assert [request.instance for request in found] == ["a"]


@given(observations(), policies, memories)
def test_a_serving_instance_is_replaced_only_if_others_fill_the_target(
    state: Observation, policy, memory
) -> None:
    decision = decide(state, policy, memory, NOW)
    verdicts = {request.instance: request.reason for request in state.replacement_requests}
    gone = released(decision.actions)
    went = [i for i in state.instances if i.id in gone and i.id in verdicts]
    served = [i for i in went if i.ready_since is not None and verdicts[i.id] not in NOT_SERVING]
    if not served:
        return
    situation = decision.state
    left = [i for i in state.instances if i.id not in gone and i.deadline is None and i.ready_since]
    # Who goes beside is not needed either: the target may be lower than what serves.
    assert slots(left) >= situation.group.target


@given(observations(), policies, memories)
def test_replacements_are_requested_and_at_most_a_share_of_the_group(
    state: Observation, policy, memory
) -> None:
    most = max(1, len(state.instances) // REPLACEMENT_DIVISOR)
    decision = decide(state, policy, memory, NOW)
    assert len(decision.state.replacements) <= most
    # Once they are gone as many others wait for their turn.
    later = decide(carried_out(state, decision), policy, decision.memory, NOW)
    ended = {*released(decision.actions)} & decision.state.replacements.keys()
    assert len(ended | later.state.replacements.keys()) <= most


@given(observations(), policies, memories)
def test_on_premises_workers_never_reduce_the_target_below_the_base(
    state: Observation, policy, memory
) -> None:
    target = decide(state, policy, memory, NOW).state.group.target
    assert min(state.group.config.base, state.group.target) <= target <= state.group.target
