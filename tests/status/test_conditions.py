"""What ``status`` says of a group: one word and its numbers, which are the controller's."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from rich.console import Console

from gpu_spot.status import command, report
from gpu_spot.status.decisions import DecisionLine
from gpu_spot.status.reader import StackReader
from gpu_spot.status.snapshot import DeclaredEntries, GroupCondition, GroupSnapshot, StackSnapshot
from gpu_spot.status.text import money, view
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.model import GroupRole, Instance, Pool, PurchaseOption, SetDesired
from lambdas.core.money.costs import HourlyCost, hourly_cost

NOW: Final = 1_000_000.0
DRAIN: Final = 20.0
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


def instances(count: int, **changes: Any) -> tuple[Instance, ...]:
    whole = Instance("i", Pool("g6.xlarge", "us-west-2a"), SPOT, GroupRole.PRIMARY, NOW - 9999, NOW - 9000)
    return tuple(replace(whole, id=f"i-{n}-{changes}", **changes) for n in range(count))


def booting(count: int, seconds: float = 60) -> tuple[Instance, ...]:
    return instances(count, ready_since=None, launched_at=NOW - seconds)


def group(target: int = 8, *parts: tuple[Instance, ...], **fields: Any) -> GroupSnapshot:
    live = tuple(instance for part in parts for instance in part)
    return GroupSnapshot("inference", target, instances=live, now=NOW, drain_seconds=DRAIN, **fields)


NOTICED, DRAINING = NOW + 110, NOW + 10
# condition, healthy, (ready, interrupted, booting, draining, missing), which are null of what is not read
STATES: Final[list[tuple[GroupSnapshot, GroupCondition, bool, tuple[int | None, ...]]]] = [
    (group(8, instances(8)), "ready", True, (8, 0, 0, 0, 0)),
    (group(8), "short", False, (0, 0, 0, 0, 8)),
    (group(8, instances(8, deadline=NOTICED)), "hand-over", True, (8, 8, 0, 0, 0)),
    (group(8, instances(8, deadline=DRAINING)), "short", False, (0, 0, 0, 8, 8)),
    (group(8, instances(6), instances(2, deadline=DRAINING), booting(2)), "hand-over", True, (6, 0, 2, 2, 2)),
    (group(8, instances(6), booting(1)), "short", False, (6, 0, 1, 0, 2)),
    (group(8, instances(6), booting(2, MAX_BOOT_SECONDS + 1)), "short", False, (6, 0, 2, 0, 2)),
    (
        group(8, instances(6), instances(2, ready_since=None, launched_at=NOW - 60, deadline=NOTICED)),
        "short",
        False,
        (6, 0, 2, 0, 2),
    ),
    (group(8, booting(8)), "starting", False, (0, 0, 8, 0, 8)),
    (group(1, booting(1), moves=True), "hand-over", True, (0, 0, 1, 0, 1)),
    (group(1, is_waiting=True, moves=True), "waiting for Spot", True, (0, 0, 0, 0, 1)),
    (group(8, instances(5), mode="paused"), "controller off", False, (5, 0, 0, 0, 3)),
    (group(8, instances(8), mode="paused"), "ready", True, (8, 0, 0, 0, 0)),
    (group(8, instances(5), on_premises_slots=3), "ready", True, (5, 0, 0, 0, 0)),
    (group(0), "no target", True, (0, 0, 0, 0, 0)),
    (
        GroupSnapshot("inference", error="parameter inference/config is missing"),
        "unreadable",
        False,
        (None,) * 5,
    ),
]


def stack(*groups: GroupSnapshot) -> StackSnapshot:
    return StackSnapshot("prod", "us-west-2", NOW, (), groups, (), (), DeclaredEntries({}), 0)


@pytest.mark.parametrize(("snapshot", "condition", "is_healthy", "counts"), STATES)
def test_a_group_has_a_condition_and_its_numbers(
    snapshot: GroupSnapshot, condition: GroupCondition, is_healthy: bool, counts: tuple[int | None, ...]
) -> None:
    whole = stack(snapshot)
    written = report.to_json(whole)
    [entry] = written["groups"]
    assert (entry["condition"], written["is_well"], whole.is_healthy) == (condition, is_healthy, is_healthy)
    assert tuple(entry[k] for k in ("ready", "interrupted", "booting", "draining", "missing")) == counts
    assert snapshot.serving_slots(NOW) == (counts[0] or 0) + snapshot.on_premises_slots
    assert (entry["target"] is None) == (entry["mode"] is None) == bool(snapshot.error)

    console = Console(width=170, record=True, file=io.StringIO())
    console.print(view(whole))
    headline, *rows = console.export_text().splitlines()
    assert ("is healthy" in headline) == is_healthy
    assert (f"inference {condition}" in headline) == (not is_healthy)
    row = next(row for row in rows if row.strip().startswith("inference "))
    assert condition in row
    if not snapshot.error:
        assert f"  {counts[4]}  " in row


@pytest.mark.parametrize("lacks", ["", "0 of 2 instances: see its activities"])
@pytest.mark.parametrize("since", [None, NOW - 125, NOW - 7384])
def test_a_warm_pool_below_its_size_is_shown_with_its_age(since: float | None, lacks: str) -> None:
    whole = stack(group(8, instances(8), warm_pool_lacks_since=since, warm_pool_lacks=lacks))
    assert whole.is_healthy  # its alarm rings after an hour
    assert report.to_json(whole)["groups"][0]["warm_pool_lacks_since"] == since
    console = Console(width=170, record=True, file=io.StringIO())
    console.print(view(whole))
    lines = [line for line in console.export_text().splitlines() if "warm pool" in line]
    age = {None: None, NOW - 125: "2:05", NOW - 7384: "2:03:04"}[since]
    line = f"inference: the warm pool is below its size for {age}{lacks and f': {lacks}'}"
    assert lines == ([line] if age else [])


@pytest.mark.parametrize("boundary", [-1.0, 0.0, 1.0])
def test_an_interrupted_instance_serves_until_its_drain_begins(boundary: float) -> None:
    one = group(1, instances(1, deadline=NOW + DRAIN + boundary))
    assert (one.missing_slots, one.slots("draining")) == ((0, 0) if boundary > 0 else (1, 1))


def observed(*live: Instance) -> Any:
    prices = {"g6e.xlarge@us-west-2a": 0.35, "g6.xlarge@us-west-2a": 0.5}
    return SimpleNamespace(instances=live, spot_prices=prices)


PRICES: Final = {"g6.xlarge": 0.8, "g6e.xlarge": 1.8}


@pytest.mark.parametrize(
    ("live", "target", "cost"),
    [
        (instances(1), 8, HourlyCost(0.4, 0.8)),
        (instances(1, pool=Pool("g6e.xlarge", "us-west-2a")), 8, HourlyCost(0.63, 0.8)),
        (instances(2, purchase_option=ON_DEMAND), 8, HourlyCost(1.6, 1.6)),
        # A successor that boots is paid for, and replaces nothing more.
        ((*instances(1), *booting(1)), 1, HourlyCost(0.8, 0.8)),
        ((), 8, HourlyCost(0, 0)),
    ],
)
def test_a_share_refers_to_the_on_demand_that_the_fallback_buys(
    live: tuple[Instance, ...], target: int, cost: HourlyCost
) -> None:
    found = hourly_cost(observed(*live), PRICES, target)
    assert (found.paid, found.on_demand) == (pytest.approx(cost.paid), pytest.approx(cost.on_demand))


def test_weights_do_not_change_the_price_of_a_slot() -> None:
    prices = {"g6.12xlarge": 3.2}
    large = instances(1, pool=Pool("g6.12xlarge", "us-west-2a"), slots=4, purchase_option=ON_DEMAND)
    assert hourly_cost(observed(*large), prices) == HourlyCost(3.2, 3.2)


def test_nothing_is_not_a_share_of_on_demand() -> None:
    assert money(HourlyCost(0, 0)) == "$0.00/h"
    assert money(None) == "unknown"


@pytest.mark.parametrize(
    ("deadline", "primary", "on_demand", "alarms", "waits"),
    [
        (NOW, (), 0, (), True),
        (0.0, (), 0, (), False),
        (NOW, instances(1), 0, (), False),
        (NOW, (), 1, (), False),
        (NOW, (), 0, by_deadline.ALARMS[:1], False),
    ],
)
def test_a_job_waits_while_it_has_time_and_nothing_runs(
    deadline: float, primary: tuple[Instance, ...], on_demand: int, alarms: tuple[str, ...], waits: bool
) -> None:
    config = SimpleNamespace(deadline=deadline)
    state: Any = SimpleNamespace(
        group=SimpleNamespace(config=config), primary=primary, committed_fallback=on_demand
    )
    assert by_deadline.is_waiting(state, (), alarms) == waits
    assert not by_deadline.is_waiting(state, (SetDesired(GroupRole.FALLBACK, 1, "due"),), alarms)


def test_the_newest_decisions_are_read_also_if_the_log_is_long() -> None:
    asked: list[tuple[float, float]] = []

    def paginate(startTime: int, endTime: int, **_: object) -> Iterator[dict[str, list[object]]]:  # noqa: N803
        asked.append((10_800 - endTime // 1000, 10_800 - startTime // 1000))
        yield from [{"events": []}] * 6  # a megabyte each

    logs = SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=paginate))
    reader = SimpleNamespace(_clients=lambda _: logs, _controller_log=lambda: "log")
    assert StackReader._decisions(reader, 10_800.0, None) == []  # type: ignore[arg-type]
    assert asked == [(0, 600), (601, 3600)]


def test_the_command_shows_brackets_and_colons_of_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rich took [us-west-2a] in AWS's errors for a style, :key: for a picture, and failed at [/dev/sdf]."""
    reason = "no capacity in [us-west-2a] for :key: at [/dev/sdf]"
    line = DecisionLine(NOW, "inference", ("alarm: quota",), reason)
    snapshot = StackSnapshot("prod", "us-west-2", NOW, (), (), (line,), (), DeclaredEntries({}), 0)
    monkeypatch.setattr(command, "StackReader", lambda *_: SimpleNamespace(read=lambda _: snapshot))
    monkeypatch.setattr(command, "settings_of", lambda _: None)
    monkeypatch.setattr(command, "declared_entries", lambda _: None)
    monkeypatch.setenv("COLUMNS", "200")
    args = argparse.Namespace(stack="prod", group=None, json=False, watch=False)
    command.act(args, SimpleNamespace(), SimpleNamespace(region="us-west-2"))  # type: ignore[arg-type]
    assert reason in capsys.readouterr().out


def test_no_command_reads_markup_in_what_it_prints() -> None:
    texts = [path.read_text("utf-8") for path in (Path(__file__).parents[2] / "gpu_spot").rglob("*.py")]
    calls = re.findall(r"Console\(.*?\)", "".join(texts))
    assert set(calls) == {"Console(markup=False, emoji=False)", "Console(stderr=True)"}
