"""The line and the JSON of an hourly budget in ``gpu-spot status``."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from contracts.group.control import Control
from contracts.group.hourly_budget import BudgetRelease, HourlyBudget
from gpu_spot.status import report
from gpu_spot.status.reader import _budget_state
from gpu_spot.status.snapshot import DeclaredEntries, GroupSnapshot, StackSnapshot
from gpu_spot.status.text import view
from tests.core.build import NOW, observe, on_demand, spot
from tests.core.build import group as make_group

BUDGET = HourlyBudget(slot_price=2.0, dollars=10.0, on_demand_dollars=4.0)
GROUP = make_group(hourly_budget=BUDGET)
RELEASE = BudgetRelease(NOW - 60, NOW + 3600, "sale day")


def snapshot(*, is_reached: bool = False, **changes: object) -> StackSnapshot:
    seen = observe(spot("s1"), spot("s2"), on_demand("o1"), group=replace(GROUP, **changes))
    state = _budget_state(seen, is_reached, NOW)
    group = GroupSnapshot("inference", 4, instances=seen.instances, hourly_budget=state)
    return StackSnapshot("dev", "us-west-2", NOW, (), (group,), (), (), DeclaredEntries({}), 0)


def lines(seen: StackSnapshot) -> list[str]:
    console = Console(width=200, record=True, file=StringIO())
    console.print(view(seen))
    return [line.rstrip() for line in console.export_text().splitlines() if "hourly budget" in line]


def test_a_budget_has_a_line_with_what_counts_against_it() -> None:
    assert lines(snapshot()) == [
        "hourly budget of inference: $6.00 of $10.00/h in all, $2.00 of $4.00/h On-Demand, at $2 a slot"
    ]
    assert lines(snapshot(hourly_budget=None)) == []


def test_a_reached_and_a_released_budget_say_so() -> None:
    [reached] = lines(snapshot(is_reached=True))
    assert reached.endswith("; REACHED, it withholds capacity")
    [released] = lines(snapshot(is_reached=True, control=Control(budget_release=RELEASE)))
    assert released.endswith("; released until 1970-01-12 14:46 UTC: sale day")
    over = replace(RELEASE, ends_at=NOW)
    assert "released" not in lines(snapshot(control=Control(budget_release=over)))[0]


def test_an_assumed_price_is_said() -> None:
    [line] = lines(snapshot(hourly_budget=replace(BUDGET, assumed=("p9.xlarge",))))
    assert line.endswith("at $2 a slot, assumed for p9.xlarge")


def test_the_json_has_the_budget() -> None:
    seen = snapshot(is_reached=True, control=Control(budget_release=RELEASE))
    assert report.to_json(seen)["groups"][0]["hourly_budget"] == {
        "usd_hour": 10.0,
        "on_demand_usd_hour": 4.0,
        "counted_usd_hour": 6.0,
        "counted_on_demand_usd_hour": 2.0,
        "slot_usd_hour": 2.0,
        "assumed": [],
        "reached": True,
        "released_until": NOW + 3600,
        "release_reason": "sale day",
    }
    assert report.to_json(snapshot(hourly_budget=None))["groups"][0]["hourly_budget"] is None
