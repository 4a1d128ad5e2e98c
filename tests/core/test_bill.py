"""What a group costs an hour, what a job's run has cost, and what the controller does about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.registry.item import Progress
from lambdas.core.capacity import memory
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies import DEFAULT, build
from lambdas.core.model import (
    Group,
    GroupRole,
    Instance,
    Observation,
    Pool,
    PurchaseOption,
    RunBudget,
    SetDesired,
)
from lambdas.core.money import bill
from lambdas.core.money.bill import Bill
from lambdas.core.money.costs import HourlyCost, hourly_cost
from tests.core.build import NOW, POOL, alarms, group, observe, on_demand, released, spot

HOUR = 3600.0
BUDGET = RunBudget(10.0, {"g5.xlarge": 1.0}, {"g5.xlarge": 1.0})
POLICY = build(DEFAULT, {"shortageCost": 4})


def job(budget: RunBudget | None = BUDGET, run: str = "r1") -> Group:
    return group(target=1, maximum=2, break_before_make=True, run=run, budget=budget)


def seen(*instances: Instance, price: float = 0.25, **more: Any) -> Observation:
    return observe(*instances, group=job(**more), spot_prices={str(POOL): price})


def test_an_instance_costs_from_its_launch_on_and_no_more_once_it_is_gone() -> None:
    at = bill.update_bill(Bill(), seen(spot("i-1", age=HOUR)), NOW)
    assert at.spent(NOW) == pytest.approx(0.25)
    assert at.spent(NOW + 2 * HOUR) == pytest.approx(0.75)
    gone = bill.update_bill(at, seen(), NOW + 2 * HOUR)
    assert gone.spent(NOW + 9 * HOUR) == pytest.approx(0.75)


def test_on_demand_costs_its_own_price_and_spot_what_was_read_last() -> None:
    at = bill.update_bill(Bill(), seen(on_demand("i-1", age=0.0), spot("i-2", age=0.0)), NOW)
    dear = bill.update_bill(at, seen(on_demand("i-1", age=0.0), spot("i-2", age=0.0), price=0.5), NOW + HOUR)
    assert dear.spent(NOW + HOUR) == pytest.approx(1.25)
    assert dear.spent(NOW + 2 * HOUR) == pytest.approx(2.75)


def test_where_no_price_is_known_the_dearest_counts() -> None:
    budget = RunBudget(10.0, {"g6.xlarge": 2.0, "g6e.xlarge": 3.0}, {"g6.xlarge": 2.0})
    assert bill.hourly_price(spot("i-1"), budget, {}) == 3.0


def test_an_unchanged_observation_does_not_change_the_bill() -> None:
    at = bill.update_bill(Bill(), seen(spot("i-1")), NOW)
    assert bill.update_bill(at, seen(spot("i-1")), NOW + HOUR) == at


def test_an_instance_missing_in_one_observation_is_not_billed_twice() -> None:
    at = bill.update_bill(Bill(), seen(spot("i-1", age=HOUR)), NOW)
    at = bill.update_bill(at, seen(), NOW + 60)
    at = bill.update_bill(at, seen(spot("i-1", age=HOUR)), NOW + 120)
    assert at.spent(NOW + 120) == pytest.approx(0.25 * (HOUR + 120) / HOUR)


def test_another_run_begins_at_nothing_and_without_a_budget_nothing_is_counted() -> None:
    at = bill.update_bill(Bill(), seen(spot("i-1", age=HOUR)), NOW)
    other = bill.update_bill(at, seen(spot("i-1", age=HOUR), run="r2"), NOW + 60)
    assert other.spent(NOW + 60) == 0
    assert other.spent(NOW + 60 + HOUR) == pytest.approx(0.25)
    assert bill.update_bill(at, seen(spot("i-1"), budget=None), NOW) == Bill()


@given(
    st.lists(
        st.tuples(st.integers(1, 7200), st.frozensets(st.sampled_from("abc")), st.sampled_from([0.2, 0.9])),
        max_size=12,
    )
)
def test_it_never_falls_and_is_never_more_than_all_that_was_seen_at_the_dearest(looks: Any) -> None:
    now, at, before = NOW, Bill(), 0.0
    for seconds, names, price in looks:
        now += seconds
        instances = [replace(spot(name), launched_at=NOW) for name in sorted(names)]
        at = bill.update_bill(at, seen(*instances, price=price), now)
        assert at.spent(now) >= before - 1e-9
        assert at.spent(now) <= 3 * 0.9 * (now - NOW) / HOUR + 1e-9
        before = at.spent(now)
    assert memory.parse(memory.dump(Memory(bill=at))).bill == at


def remembered(dollars: float, **more: Any) -> Memory:
    return Memory(bill=Bill("r1", dollars, NOW, {}), **more)


def test_four_fifths_of_a_budget_are_said_once_and_the_job_goes_on() -> None:
    looked = seen(spot("i-1", age=0.0))
    decision = decide(looked, POLICY, remembered(7.99), NOW)
    assert alarms(decision) == []
    assert decision.next_run_at is not None
    assert decision.next_run_at <= NOW + 0.01 / 0.25 * HOUR + 1
    decision = decide(looked, POLICY, remembered(8.0), NOW)
    assert alarms(decision) == [bill.LOW]
    assert released(decision.actions) == ()
    again = decide(looked, POLICY, decision.memory, NOW + 60)
    assert alarms(again) == []
    assert bill.LOW in again.memory.active_alarms


def test_a_job_with_a_spent_budget_is_terminated_until_the_budget_is_raised() -> None:
    decision = decide(seen(spot("i-1", age=0.0)), POLICY, remembered(10.0), NOW)
    assert alarms(decision) == [bill.SPENT]
    assert released(decision.actions) == ("i-1",)
    empty = replace(seen(), primary_desired=0)
    held = decide(empty, POLICY, decision.memory, NOW + 600)
    assert held.actions == ()
    more = replace(empty, group=job(replace(BUDGET, dollars=20.0)))
    raised = decide(more, POLICY, held.memory, NOW + 1200)
    assert [action for action in raised.actions if isinstance(action, SetDesired)]
    assert bill.SPENT not in raised.memory.active_alarms


def test_an_insufficient_budget_raises_an_alarm_at_once_by_the_best_case() -> None:
    def with_progress(steps: int) -> Observation:
        progress = Progress(
            step=0, steps=steps, reported_at=NOW, first_reported_at=NOW - HOUR, rate=0.5, best_rate=1.0
        )
        return seen(replace(on_demand("i-1", age=0.0), progress=progress))

    # On spot it will do.
    assert alarms(decide(with_progress(39 * 3600), POLICY, remembered(0.0), NOW)) == []
    assert alarms(decide(with_progress(41 * 3600), POLICY, remembered(0.0), NOW)) == [bill.SHORT]


def test_a_memory_from_before_budgets_is_read() -> None:
    text = memory.dump(Memory()).replace('"bill":', '"was":')
    assert memory.parse(text).bill == Bill()
    broken = memory.dump(Memory(bill=Bill("r1", 1.0, NOW, {}))).replace('"closed":1.0', '"closed":-1.0')
    with pytest.raises(ValueError, match="stored state"):
        memory.parse(broken)


PRICES = {"g5.xlarge": 1.0, "g5.2xlarge": 1.5}
HERE = Pool("g5.xlarge", "us-west-2a")
LARGE = Pool("g5.2xlarge", "us-west-2b")


def priced(*instances: tuple[Pool, PurchaseOption], **spot_prices: float) -> Observation:
    return Observation(
        group("ocr", target=2, maximum=4),
        2,
        0,
        tuple(
            Instance(f"i-{number}", pool, market, GroupRole.PRIMARY, 0.0)
            for number, (pool, market) in enumerate(instances)
        ),
        spot_prices={str(HERE): 0.25, str(LARGE): 0.4, **spot_prices},
    )


def test_spot_is_paid_at_its_price_and_all_is_compared_with_the_cheapest_slot() -> None:
    found = hourly_cost(
        priced((HERE, PurchaseOption.SPOT), (LARGE, PurchaseOption.SPOT), (HERE, PurchaseOption.ON_DEMAND)),
        PRICES,
    )
    assert found == HourlyCost(paid=pytest.approx(0.25 + 0.6 + 1.0), on_demand=pytest.approx(3.0))


def test_nothing_costs_nothing() -> None:
    assert hourly_cost(priced(), {}) == HourlyCost(0.0, 0.0)


@pytest.mark.parametrize(
    "instance",
    [
        (Pool("p5.48xlarge", "us-west-2a"), PurchaseOption.ON_DEMAND),
        (Pool("g5.xlarge", "us-west-2c"), PurchaseOption.SPOT),
    ],
)
def test_one_unknown_price_makes_the_cost_unknown(instance: tuple[Pool, PurchaseOption]) -> None:
    assert hourly_cost(priced((HERE, PurchaseOption.SPOT), instance), PRICES) is None
