"""When On-Demand is requested for an instance with a notice: as late as earlier requests allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.replacement_requests import ReplacementRequest
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import BOOT_SAMPLES, MIN_LEADS, Memory, update_memory
from lambdas.core.capacity.policies.expected_cost import LEAD_MARGIN_SECONDS, ExpectedCost
from lambdas.core.model import GroupRole, Instance, Observation, Pool, PurchaseOption
from tests.core.build import NOW, carried_out, desired, observe, on_demand, spot
from tests.core.build import group as make_group

LEADS = (40.0,) * (MIN_LEADS - 1) + (55.0,)
BOOTS = {PurchaseOption.ON_DEMAND: (40.0,), PurchaseOption.SPOT: (180.0,)}
LEARNED = Memory(boots=BOOTS, fallback_leads=LEADS)


def interrupted(count: int = 4, ahead: float = 120.0, zone: str = "us-west-2a") -> list[Instance]:
    pool = Pool("g5.xlarge", zone)
    return [replace(spot(f"{zone}-{n}", deadline=NOW + ahead), pool=pool) for n in range(count)]


def requested(state: Observation, memory: Memory, now: float = NOW) -> int:
    actions = decide(state, ExpectedCost(), memory, now).actions
    return desired(actions, GroupRole.FALLBACK) or 0


def test_a_successor_is_requested_as_late_as_the_slowest_request_allows() -> None:
    state = observe(*interrupted(), group=make_group(drain_seconds=20))
    decision = decide(state, ExpectedCost(), LEARNED, NOW)
    start = NOW + 120 - 20 - 55 - LEAD_MARGIN_SECONDS
    assert desired(decision.actions, GroupRole.FALLBACK) is None
    assert decision.next_run_at == start
    assert requested(carried_out(state, decision), decision.memory, start - 1) == 0
    assert requested(carried_out(state, decision), decision.memory, start) == 4


@pytest.mark.parametrize(
    ("group", "memory"),
    [
        ({}, {"fallback_leads": LEADS[1:]}),
        ({}, {"fallback_leads": (*LEADS, 110.0)}),
        ({"maximum": 7}, {}),
        ({"drain_seconds": 55.0}, {}),
    ],
    ids=["four leads", "a slow one", "no room for both", "a long drain"],
)
def test_else_it_is_requested_at_the_notice(group: dict[str, Any], memory: dict[str, Any]) -> None:
    state = observe(*interrupted(), group=make_group(**group))
    assert requested(state, replace(LEARNED, **memory)) == min(state.group.target, state.group.maximum - 4)


def test_an_instance_of_the_zone_without_a_notice_changes_nothing() -> None:
    state = observe(*interrupted(3), spot("in the same zone"), group=make_group(target=3))
    assert requested(state, LEARNED) == 0


@given(
    st.lists(st.floats(0, 200), min_size=MIN_LEADS, max_size=BOOT_SAMPLES),
    st.floats(0, 120),
    st.floats(0, 60),
)
def test_it_is_never_later_than_the_slowest_request_before_the_drain(
    leads: list[float], ahead: float, drain: float
) -> None:
    state = observe(*interrupted(ahead=ahead), group=make_group(drain_seconds=drain))
    memory, now = replace(LEARNED, fallback_leads=tuple(leads)), NOW
    latest = max(NOW, NOW + ahead - drain - max(leads))
    for _ in range(20):
        decision = decide(state, ExpectedCost(), memory, now)
        if desired(decision.actions, GroupRole.FALLBACK):
            break
        assert decision.next_run_at is not None
        state, memory, now = carried_out(state, decision), decision.memory, decision.next_run_at
    assert desired(decision.actions, GroupRole.FALLBACK) == 4
    assert now <= latest + 1e-6


def after(memory: Memory, state: Observation, now: float) -> tuple[float, ...]:
    return update_memory(memory, state, now).fallback_leads


def test_a_request_teaches_how_long_it_took_until_it_was_seen_ready() -> None:
    state = observe(*interrupted(2), spot("s1"), spot("s2"))
    decision = decide(state, ExpectedCost(), Memory(boots=BOOTS), NOW)
    memory = decision.memory
    assert desired(decision.actions, GroupRole.FALLBACK) == 2
    new = [replace(on_demand(f"d{n}", ready=n == 0), launched_at=NOW + 30 * n) for n in range(2)]
    state = replace(carried_out(state, decision), instances=(*state.instances, *new))
    assert after(memory, state, NOW + 70) == ()
    state = replace(state, instances=(*state.instances[:-1], replace(new[1], ready_since=NOW + 80)))
    assert after(memory, state, NOW + 95) == (95.0,)
    assert after(replace(memory, fallback_leads=(1.0,) * BOOT_SAMPLES), state, NOW + 95)[-1] == 95.0
    assert len(after(replace(memory, fallback_leads=(1.0,) * BOOT_SAMPLES), state, NOW + 95)) == BOOT_SAMPLES


@pytest.mark.parametrize(("seconds", "learned"), [(20.0, ()), (300.0, (300.0,))])
def test_a_withdrawn_request_counts_only_if_it_waited_longer_than_any(
    seconds: float, learned: tuple[float, ...]
) -> None:
    memory = replace(LEARNED, fallback_requested_at=NOW - seconds)
    assert after(memory, observe(*map(spot, "abcd")), NOW) == (*LEADS, *learned)


def test_a_notice_that_was_too_short_ends_the_waiting() -> None:
    state = observe(*interrupted())
    memory = update_memory(LEARNED, state, NOW)
    assert after(memory, observe(), NOW + 100) == LEADS
    early = update_memory(memory, observe(), NOW + 60)
    assert early.fallback_leads == (*LEADS, 120.0)
    ours = replace(memory, termination_requests={i.id: NOW for i in state.instances})
    assert after(ours, observe(), NOW + 60) == LEADS


def test_a_replacement_by_request_has_its_successor_at_once() -> None:
    request = ReplacementRequest("a", int(NOW) - 60, "xid")
    state = observe(*map(spot, "abcd"), replacement_requests=(request,))
    assert requested(state, LEARNED) == 1
