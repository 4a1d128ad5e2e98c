"""The resources counted from one entry of each kind equal what the program declares for all entries."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.forecast import fixed_costs, stack
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.running import declare_silently
from gpu_spot.forecast.stack import StackForecast
from gpu_spot.preflight.prices import Line
from gpu_spot.preflight.stack import declare
from infra.settings import load_settings
from tests.apart import apart
from tests.forecast.conftest import WEEK, job, pods, service, stack_file, with_cluster

REPOSITORY = Path(__file__).parents[2]
MANY = stack_file(
    [service("first"), service("first-two", target=3)], [job("one", volumeGiB=100), job("two", volumeGiB=200)]
)


def priced(values: dict[str, Any], *, whole: bool) -> tuple[list[Line], dict[str, int]]:
    config = StackConfig("gpu-spot", "x", REPOSITORY / "infra", values)
    few, times = fixed_costs.reduce_entries(config)
    if whole:
        return list(fixed_costs.lines(declare(config), 0.0)), {}
    stack = fixed_costs.multiply(declare(few), times, load_settings(values))
    return list(fixed_costs.lines(stack, 0.0)), times


def test_one_entry_of_each_kind_stands_for_all() -> None:
    found, times = apart(priced, MANY, whole=False)
    assert times == {"first": 2, "one": 2}
    assert found == apart(priced, MANY, whole=True)[0]
    counted = {line.item: line.count for line in found}
    assert counted["alarms"] > 30
    assert counted["NAT gateways"] == 1
    assert counted["function requests"] == 2 * 730 * 60


BROKER = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}


def shared(broker: str, *calls: str) -> dict[str, Any]:
    return {"kind": "rabbitmq", "existing": {"brokerOf": broker}, "calls": list(calls)}


@pytest.mark.parametrize(
    ("queues", "stand_for"),
    [
        ([BROKER, BROKER, shared("two"), shared("two")], {"one": 1, "two": 1, "three": 2}),
        ([BROKER | {"calls": ["two", "three"]}, shared("one", "three"), shared("one", "two")], None),
    ],
)
def test_an_entry_that_another_names_stands_for_itself(
    queues: list[dict[str, Any]], stand_for: dict[str, int] | None
) -> None:
    names = ("one", "two", "three", "four")
    values = stack_file(
        [
            {**service(name), "command": ["x"], "queue": queue}
            for name, queue in zip(names, queues, strict=False)
        ]
    )
    found, times = apart(priced, values, whole=False)
    assert times == (stand_for or dict.fromkeys(names[:3], 1))
    assert found == apart(priced, values, whole=True)[0]


def bill(*files: dict[str, Any]) -> list[StackForecast]:
    """Return the forecasts of stack files whose groups all behave as ``WEEK``."""
    found = []
    for values in files:
        config = StackConfig("gpu-spot", "x", REPOSITORY / "infra", values)
        settings, listed = load_settings(values), Prices("us-west-2")
        few, times = fixed_costs.reduce_entries(config)
        asked = stack.questions(settings, listed, None)
        declared = fixed_costs.multiply(declare(few), times, settings)
        outlooks = {one: WEEK for one in asked.values() if one is not None}
        found.append(stack.forecast(settings, listed, asked, outlooks, declared))
    return found


OWN = {
    "nodeRole": None,
    "create": {
        "access": [{"role": "arn:aws:iam::123456789012:role/up", "accessPolicy": "admin"}],
        "allowedSources": ["10.40.0.0/16"],
    },
}


def test_a_clusters_lines_come_with_its_first_entry_and_another_entry_adds_its_nodes_alone() -> None:
    entries = [service(name, target=n, rootVolumeThroughputMib=250) for name, n in (("one", 3), ("two", 4))]
    none, one, two = apart(
        bill,
        *(
            with_cluster(
                stack_file([pods(entry) if n < there else entry for n, entry in enumerate(entries)]), **OWN
            )
            for there in (0, 1, 2)
        ),
    )
    lines = [
        {line.item: (line.count, line.unit_price) for line in forecast.lines} for forecast in (none, one, two)
    ]
    cluster = {
        "EKS control planes": (1, pytest.approx(73.0)),
        "system nodes m7g.large": (2, pytest.approx(59.568)),
        "GiB of system nodes": (60, 0.08),
        "KMS keys": (1, 1.0),
    }
    assert not cluster.keys() & lines[0].keys()
    for later in lines[1:]:
        assert {what: later[what] for what in cluster} == cluster
    # Only instances have alarms for their groups.
    ours = {"alarms", "custom metrics", "heartbeats, million"}
    assert {what for what in {*lines[0], *lines[1]} if lines[0].get(what) != lines[1].get(what)} <= {
        *(ours | cluster.keys()),
        *("function requests", "function GiB-seconds", "GB of logs"),
        *("items written, million", "items read, million"),
    }
    assert {what for what in {*lines[1], *lines[2]} if lines[1].get(what) != lines[2].get(what)} >= ours
    for before, after in ((none, one), (one, two)):
        assert [group.cost for group in sorted(after.groups, key=lambda group: group.name)] == [
            group.cost for group in sorted(before.groups, key=lambda group: group.name)
        ]
        changed = after.fixed_costs - before.fixed_costs
        assert after.month.middle - before.month.middle == pytest.approx(changed)
    assert not any("EKS" in said for said in none.not_counted)
    assert [said for said in one.not_counted if said.startswith("EKS extended support ($438 instead of $73)")]


def test_entries_of_both_halves_are_not_alike() -> None:
    there = pods(service("there"))
    both = stack_file([there, {**there, "name": "here", "runsOn": "instances"}])
    few, times = fixed_costs.reduce_entries(StackConfig("gpu-spot", "x", REPOSITORY / "infra", both))
    assert times == {"there": 1, "here": 1}
    assert len(few.values["gpu-spot:services"]) == 2


def logged_warnings(values: dict[str, Any], *, quietly: bool) -> list[str]:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    config = StackConfig("gpu-spot", "x", REPOSITORY / "infra", values)
    (declare_silently if quietly else declare)(config)
    return messages


def test_the_program_warns_once_and_never_if_silenced() -> None:
    values = stack_file([], [job("one", deadline="2026-01-01T00:00:00Z")])
    [warning] = [
        one for one in apart(logged_warnings, values, quietly=False) if "training[0].deadline" in one
    ]
    assert "has passed" in warning
    assert apart(logged_warnings, values, quietly=True) == []


def test_versions_that_declare_the_same_resources_share_a_run() -> None:
    def likeness(*services: dict[str, Any], **more: Any) -> str:
        values = stack_file(list(services), []) | more
        return fixed_costs.likeness(
            fixed_costs.reduce_entries(StackConfig("gpu-spot", "x", REPOSITORY / "infra", values))[0]
        )

    before = likeness(service("first", target=3))
    assert likeness(service("first", target=2)) == before
    assert likeness(service("first", target=3), service("second", target=5)) == before  # one more of a kind
    for other in (
        likeness(service("other", target=3)),
        likeness(service("first", target=0)),
        likeness(service("first", target=3), **{"aws:region": "us-east-2"}),
    ):
        assert other != before
