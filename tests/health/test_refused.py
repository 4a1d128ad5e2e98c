"""Requests that workers refuse become a metric by origin."""

from __future__ import annotations

from dataclasses import replace

from contracts import names
from contracts.registry.item import Worker
from lambdas.core.health.decision import decide
from lambdas.handlers.health import workers_of
from tests.health.simulated_group import SimulatedGroup


def refusing(rate: float) -> SimulatedGroup:
    def refuse(worker: Worker) -> Worker:
        assert worker.report is not None
        return replace(worker, report=replace(worker.report, refused=rate))

    group = SimulatedGroup().add("i-1", "i-2").add("host", on_premises=True)
    group.faults = {"i-1": refuse, "host": refuse}
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
