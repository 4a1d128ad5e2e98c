"""The hourly budget: slots at the highest price, in the plan, in the last step, in alarms; its release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.group.control import Control, Mode
from contracts.group.control import parse as parse_control
from contracts.group.hourly_budget import BudgetRelease, HourlyBudget
from contracts.stored import ContractError
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.on_premises import OnPremisesOffset
from lambdas.core.capacity.policies.ready_handover import ReadyHandover
from lambdas.core.model import Alarm, Group, GroupRole, Observation, SetDesired
from lambdas.core.money import hourly
from tests.core.build import NOW, desired, observe, on_demand, spot
from tests.core.build import group as make_group

BUDGET = HourlyBudget(slot_price=2.0, dollars=10.0)
FALLBACK, PRIMARY = GroupRole.FALLBACK, GroupRole.PRIMARY


def limited(budget: HourlyBudget = BUDGET, **changes: object) -> Group:
    return make_group(**{"hourly_budget": budget, **changes})


def plan(seen: Observation, now: float = NOW, memory: Memory = Memory()) -> Decision:  # noqa: B008 - frozen
    return decide(seen, ReadyHandover(), memory, now)


def alarmed(decision: Decision) -> list[str]:
    return [a.reason for a in decision.actions if isinstance(a, Alarm) and a.kind == hourly.REACHED]


@pytest.mark.parametrize(
    ("dollars", "slots"), [(0.0, None), (1.99, 0), (2.0, 1), (9.99, 4), (10.0, 5), (10.01, 5)]
)
def test_a_budget_is_slots_at_the_highest_price(dollars: float, slots: int | None) -> None:
    assert HourlyBudget(slot_price=2.0, dollars=dollars).slots == slots
    assert HourlyBudget(slot_price=2.0, on_demand_dollars=dollars).on_demand_slots == slots


def test_a_budget_allows_whole_slots_in_spite_of_rounding() -> None:
    assert HourlyBudget(slot_price=1.006, dollars=3 * 1.006).slots == 3
    assert HourlyBudget(slot_price=0.1, dollars=0.3).slots == 3


def test_a_group_is_limited_with_room_for_an_exchange() -> None:
    group = hourly.limit_group(limited(target=8, maximum=20, base=6, reserved=7), NOW)
    assert (group.maximum, group.target, group.base, group.reserved) == (5, 4, 4, 4)
    weighted = replace(BUDGET, largest=4)
    assert hourly.limit_group(limited(weighted, target=8), NOW).target == 1
    assert hourly.limit_group(limited(target=8, fallback=False), NOW).target == 5
    roomy = limited(HourlyBudget(slot_price=2.0, dollars=100.0))
    assert hourly.limit_group(roomy, NOW) == roomy
    assert hourly.limit_group(make_group(), NOW) == make_group()


def test_on_demand_is_bought_up_to_the_budget_for_all() -> None:
    """Four Spot Instances have a notice: of four successors the budget for five allows one."""
    ready = [spot(f"s{n}", deadline=NOW + 100) for n in range(4)]
    decision = plan(observe(*ready, group=limited()))
    assert desired(decision.actions, FALLBACK) == 1
    unlimited = plan(observe(*ready, group=make_group()))
    assert desired(unlimited.actions, FALLBACK) == 4


@pytest.mark.parametrize(("dollars", "bought"), [(2.0, 1), (4.0, 2), (5.9, 2), (8.0, 4), (100.0, 4)])
def test_on_demand_is_bought_up_to_its_own_budget(dollars: float, bought: int) -> None:
    budget = HourlyBudget(slot_price=2.0, on_demand_dollars=dollars)
    decision = plan(observe(group=limited(budget)))
    assert desired(decision.actions, FALLBACK) == bought


def test_the_on_demand_share_of_the_primary_group_counts() -> None:
    budget = HourlyBudget(slot_price=2.0, on_demand_dollars=6.0)
    held = on_demand("o1", side=PRIMARY)
    decision = plan(observe(held, group=limited(budget, base=1)))
    assert desired(decision.actions, FALLBACK) == 2
    # Half of eight would be four On-Demand slots: six have three.
    mixed = limited(budget, target=8, maximum=20, spot_percentage=50)
    assert desired(plan(observe(group=mixed, primary_desired=0)).actions, PRIMARY) == 6


def capacities(
    seen: Observation, *actions: SetDesired, unsettled: dict[GroupRole, int] | None = None
) -> list:
    found = hourly.limit_actions(actions, seen, unsettled or {}, NOW)
    return [(a.group_role, a.capacity) for a in found if isinstance(a, SetDesired)]


def test_the_last_step_counts_what_aws_counts() -> None:
    seen = observe(spot("s1"), spot("s2"), group=limited(), primary_desired=2)
    assert capacities(seen, SetDesired(FALLBACK, 3, "")) == [(FALLBACK, 3)]
    assert capacities(seen, SetDesired(FALLBACK, 4, "")) == [(FALLBACK, 3)]
    # What was raised before it counts as well, and instances that AWS is terminating.
    both = capacities(seen, SetDesired(PRIMARY, 4, ""), SetDesired(FALLBACK, 4, ""))
    assert both == [(PRIMARY, 4), (FALLBACK, 1)]
    ending = replace(spot("s3"), is_terminating=True)
    seen = observe(spot("s1"), spot("s2"), ending, group=limited(), primary_desired=2)
    assert capacities(seen, SetDesired(FALLBACK, 3, "")) == [(FALLBACK, 2)]
    assert capacities(seen, SetDesired(FALLBACK, 3, ""), unsettled={PRIMARY: 3}) == [(FALLBACK, 1)]
    listed = replace(seen, listed_slots={PRIMARY: 4})
    assert capacities(listed, SetDesired(FALLBACK, 3, "")) == []


def test_the_last_step_lowers_nothing_that_runs() -> None:
    seen = observe(*(spot(f"s{n}") for n in range(7)), group=limited(), primary_desired=7)
    assert capacities(seen, SetDesired(PRIMARY, 7, "")) == [(PRIMARY, 7)]
    assert capacities(seen, SetDesired(PRIMARY, 9, "")) == []
    assert capacities(seen, SetDesired(PRIMARY, 3, "")) == [(PRIMARY, 3)]


def test_a_decision_says_that_the_budget_withholds_capacity() -> None:
    ready = [spot(f"s{n}", deadline=NOW + 10) for n in range(4)]
    seen = observe(*ready, group=limited(drain_seconds=30))
    [reason] = alarmed(plan(seen))
    assert reason == "$10.00 an hour allow 5 slots at $2: 0 of 4 are ready"
    again = plan(seen, memory=replace(Memory(), active_alarms=frozenset({hourly.REACHED})))
    assert alarmed(again) == []
    assert hourly.REACHED in again.memory.active_alarms


def test_a_full_group_without_a_shortage_raises_no_alarm() -> None:
    held = [spot(f"s{n}") for n in range(4)]
    for is_ready in (True, False):
        assert alarmed(plan(observe(*held, on_demand("o1", ready=is_ready), group=limited()))) == []
    assert alarmed(plan(observe(*held, group=limited(target=5)))) != []


def test_a_target_that_on_premises_workers_serve_raises_no_alarm() -> None:
    served = replace(observe(spot("s1"), spot("s2"), group=limited()), on_premises_slots=2)
    memory = Memory(on_premises_offset=OnPremisesOffset(2))
    decision = plan(served, memory=memory)
    assert decision.state.group.target == 2
    assert alarmed(decision) == []


def test_an_alarm_names_types_of_assumed_price() -> None:
    budget = HourlyBudget(
        slot_price=20.0, dollars=100.0, on_demand_dollars=20.0, assumed=("p9.xlarge", "p9.2xlarge")
    )
    [reason] = alarmed(plan(observe(group=limited(budget))))
    assert reason == (
        "$100.00 an hour allow 5 slots and $20.00 an hour of On-Demand allow 1 slots at $20 "
        "(assumed for p9.xlarge, p9.2xlarge): 0 of 4 are ready"
    )


def test_a_release_lifts_the_budget_for_its_time() -> None:
    release = BudgetRelease(NOW - 60, NOW + 3600, "sale day")
    group = limited(control=Control(budget_release=release))
    decision = plan(observe(group=group))
    assert desired(decision.actions, FALLBACK) == 4
    assert "hourly budget released until 14:46 UTC: sale day" in decision.reason
    assert alarmed(decision) == []
    assert decision.next_run_at is not None
    assert decision.next_run_at <= release.ends_at
    assert desired(plan(observe(group=group), now=release.ends_at).actions, FALLBACK) == 1
    assert desired(plan(observe(group=group), now=release.starts_at - 1).actions, FALLBACK) == 1


def test_a_release_longer_than_a_day_is_none() -> None:
    assert BudgetRelease(NOW, NOW + 86_400, "r").is_active(NOW)
    assert not BudgetRelease(NOW, NOW + 86_401, "r").is_active(NOW)


@pytest.mark.parametrize("reason", ["", "x" * 201])
def test_a_release_needs_a_reason(reason: str) -> None:
    text = f'{{"budgetRelease": {{"startsAt": 0, "endsAt": 1, "reason": "{reason}"}}}}'
    with pytest.raises(ContractError, match=r"budgetRelease\.reason"):
        parse_control(text)


def test_the_budget_holds_in_manual_mode() -> None:
    manual = Control(Mode.MANUAL, on_demand=8)
    assert desired(plan(observe(group=limited(control=manual))).actions, FALLBACK) == 1
