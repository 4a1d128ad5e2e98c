"""Requests that workers refuse and workers that take none become metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from contracts import names
from lambdas.aws.health.checker import HealthOutcome
from lambdas.core.health import stopped_workers
from lambdas.core.health.decision import decide
from lambdas.handlers import health
from lambdas.handlers.health import workers_of
from tests.health.simulated_group import SimulatedGroup, with_report


def refusing(rate: float) -> SimulatedGroup:
    group = SimulatedGroup().add("i-1", "i-2").add("host", on_premises=True)
    group.faults = dict.fromkeys(("i-1", "host"), lambda worker: with_report(worker, refused=rate))
    return group


def test_refused_requests_are_summed_by_origin() -> None:
    group = refusing(0.75)
    summary = decide(group.snapshot(), group.settings, group.memory).summary
    metrics = workers_of(summary)
    refused = {origin: values[names.METRIC_REQUESTS_REFUSED] for origin, values in metrics.items()}
    assert refused == {names.ORIGIN_AWS: 0.75, names.ORIGIN_ON_PREMISES: 0.75}


def test_workers_that_do_not_report_any_more_refuse_nothing() -> None:
    group = refusing(0.75)
    group.now += 3600
    snapshot = group.snapshot()
    stale = replace(
        snapshot,
        hosts=tuple(
            replace(host, workers=tuple(replace(w, heartbeat=w.heartbeat - 3600) for w in host.workers))
            for host in snapshot.hosts
        ),
    )
    assert not any(decide(stale, group.settings, group.memory).summary.refused.values())


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENV_STACK, "dev")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", names.SERVICE_HEALTH)


def emitted(group: SimulatedGroup, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    decision = decide(group.snapshot(), group.settings, group.memory)
    health._report(HealthOutcome("ocr", decision))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]


@pytest.mark.parametrize(("refused", "percent"), [(0.0, 0.0), (1.0, 25.0), (9.0, 75.0)])
def test_the_share_of_refused_requests_is_of_all_that_arrived(
    deployed: None, capsys: pytest.CaptureFixture[str], refused: float, percent: float
) -> None:
    group = SimulatedGroup().add("i-1", "i-2")
    group.faults = dict.fromkeys(group.hosts, lambda worker: with_report(worker, refused=refused, rate=3.0))
    lines = [entry for entry in emitted(group, capsys) if names.METRIC_REQUESTS_REFUSED_SHARE in entry]
    # A share of 0 has no series.
    assert [line[names.METRIC_REQUESTS_REFUSED_SHARE] for line in lines] == ([[percent]] if percent else [])
    assert all((e["group"], e["stack"], e["service"]) == ("ocr", "dev", names.SERVICE_HEALTH) for e in lines)


def test_without_requests_the_share_is_unknown() -> None:
    group = SimulatedGroup().add("i-1")
    group.faults = {"i-1": lambda worker: with_report(worker, refused=0.0, rate=0.0)}
    assert decide(group.snapshot(), group.settings, group.memory).summary.refused_percent is None


BOUND = "1000 replies (5000 bytes) wait for the broker: "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOUND + "low on memory", "memory"),
        (BOUND + "low on disk", "disk"),
        (BOUND + "low on memory & disk", "memory"),
        (BOUND + "no connection", "connection"),
        (BOUND + "blocked", "other"),
        ("disk full", "disk"),
        ("paused by hand", "other"),
    ],
)
def test_workers_that_take_no_requests_are_counted_by_reason(
    deployed: None, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    group = SimulatedGroup().add("i-1", "i-2", "i-3")
    group.faults = dict.fromkeys(("i-1", "i-2"), lambda worker: with_report(worker, stopped=text))
    assert reason in names.STOP_REASONS
    [line] = [entry for entry in emitted(group, capsys) if names.METRIC_WORKERS_STOPPED in entry]
    assert (line[names.METRIC_WORKERS_STOPPED], line[names.STOP_REASON]) == ([2], reason)


def test_workers_that_take_requests_are_not_counted() -> None:
    group = SimulatedGroup().add("i-1")
    summary = decide(group.snapshot(), group.settings, group.memory).summary
    assert summary.stopped == {}
    assert stopped_workers.count([]) == {}
