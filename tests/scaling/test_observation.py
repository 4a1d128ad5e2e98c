"""The scaler's observation of hosts: ready and booting workers, and the throughput of busy ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.model import WorkerHost
from lambdas.core.scaling.model import LoadObservation
from lambdas.core.scaling.observation import observe
from lambdas.core.scaling.queue_source import QueueSource
from lambdas.core.scaling.throughput import Throughput, WorkDone

NOW = 1_767_571_200.0
MEASURED = Throughput({"g6.xlarge": (60.0, 120.0)}, NOW - 60)
"""A worker completes one request in two seconds."""


def host(name: str, rate: float = 0.4, **more: Any) -> WorkerHost:
    worker = Worker(
        "ocr", name, 0, NOW - 900, NOW - 5, "ready", report=WorkerReport("1", reported_at=NOW - 5, rate=rate)
    )
    return WorkerHost(
        name, **{"workers": (worker,), "expected_workers": 1, "launched_at": NOW - 3600, **more}
    )


def observation_of(
    *hosts: WorkerHost, oldest: float = 0.0, throughput: Throughput = MEASURED
) -> LoadObservation:
    queue = QueueState(NOW - 30, int(oldest > 0), 1, oldest, 1.0, 1.0, 1)
    types = {one.id: "g6.xlarge" for one in hosts if not one.is_on_premises}
    return observe(NOW, 4, QueueSource(queue), hosts, types, 120.0, throughput)


def test_ready_workers_count_by_type_and_leaving_ones_do_not() -> None:
    leaving = Worker("ocr", "i-4", 0, NOW - 900, NOW - 5, "ready", deadline=NOW + 60)
    late = Worker("ocr", "i-5", 0, NOW - 900, NOW - 500, "ready")
    observation = observation_of(
        host("i-1"),
        host("i-2"),
        host("i-3", exemption_reason="interrupted"),
        host("i-4", workers=(leaving,)),
        host("i-5", workers=(late,)),
        host("gpu-1", launched_at=None),
    )
    assert observation.ready == {"g6.xlarge": 2, "on-premises": 1}
    assert (observation.booting, observation.on_premises) == (0, {})


@pytest.mark.parametrize(
    ("on_demand", "on_demand_workers", "scarce"),
    [
        (0, (), False),
        (0, (1,), True),
        (1, (1,), False),  # part of the mix
        (1, (1, 1), True),
        (1, (4,), False),  # part of the mix, in one instance of four
        (4, (4, 4), True),
    ],
)
def test_spot_is_scarce_if_on_demand_exceeds_the_mix(
    on_demand: int, on_demand_workers: tuple[int, ...], scarce: bool
) -> None:
    hosts = [host(f"i-{n}", expected_workers=count) for n, count in enumerate(on_demand_workers)]
    hosts += [
        host("i-spot", is_spot=True),
        host("gpu-1", launched_at=None),
        host("i-leaves", exemption_reason="terminating"),
    ]
    assert observe(NOW, 4, QueueSource(None), hosts, {}, 120.0, MEASURED, on_demand).is_spot_scarce is scarce


def test_an_old_instance_without_workers_is_not_booting() -> None:
    observation = observation_of(
        host("i-1", workers=(), expected_workers=4, launched_at=NOW - 60),
        host("i-2", workers=(), expected_workers=4, launched_at=NOW - 600),
    )
    assert (observation.booting, observation.booting_seconds) == (4, 60)


@pytest.mark.parametrize(
    ("rate", "oldest", "seconds"),
    [
        (0.4, 0.0, 48.0),  # not busy for the whole minute: the measured rate counts
        (0.4, 120.0, 48.0),  # not busy for the whole window of the rate
        (0.4, 400.0, 60.0),  # slower than measured before
        (0.8, 0.0, 60.0),  # faster
    ],
)
def test_a_rate_is_a_throughput_only_if_the_worker_was_always_busy(
    rate: float, oldest: float, seconds: float
) -> None:
    assert observation_of(host("i-1", rate), oldest=oldest).work_done == {
        "g6.xlarge": WorkDone(60 * rate, seconds)
    }


@pytest.mark.parametrize(("oldest", "expected"), [(0.0, {}), (90.0, {"g6.xlarge": WorkDone(24.0, 60.0)})])
def test_an_unmeasured_type_is_measured_in_the_first_minute_with_waiting_requests(
    oldest: float, expected: dict[str, WorkDone]
) -> None:
    assert observation_of(host("i-1"), oldest=oldest, throughput=Throughput()).work_done == expected


@pytest.mark.parametrize(
    ("use", "expected"), [(None, {}), (2.0, {}), (50.0, {"g6.xlarge": WorkDone(24.0, 30.0)})]
)
def test_the_first_estimate_is_the_gpu_utilization(use: float | None, expected: dict[str, WorkDone]) -> None:
    report = WorkerReport("1", reported_at=NOW - 5, rate=0.4, gpu_use=use)
    worker = Worker("ocr", "i-1", 0, NOW - 900, NOW - 5, "ready", report=report)
    assert observation_of(host("i-1", workers=(worker,)), throughput=Throughput()).work_done == expected


def host_with_busy_share(rate: float, busy: float | None, **more: Any) -> WorkerHost:
    report = WorkerReport("1", reported_at=NOW - 5, rate=rate, busy=busy)
    return host("i-1", workers=(Worker("ocr", "i-1", 0, NOW - 900, NOW - 5, "ready", report=report),), **more)


@pytest.mark.parametrize(
    ("rate", "busy", "oldest", "expected"),
    [
        (0.4, 0.5, 0.0, WorkDone(24.0, 30.0)),  # faster than measured before, at partial load
        (0.1, 0.8, 0.0, WorkDone(6.0, 48.0)),  # slower, and the queue is empty
        (0.0, 0.0, 0.0, None),
        (0.4, 0.5, 400.0, WorkDone(24.0, 60.0)),  # always busy, whatever it reports
    ],
)
def test_a_worker_that_reports_its_busy_share_is_measured_without_a_queue(
    rate: float, busy: float, oldest: float, expected: WorkDone | None
) -> None:
    for throughput in (MEASURED, Throughput()):
        assert (
            observation_of(
                host_with_busy_share(rate, busy), oldest=oldest, throughput=throughput
            ).work_done.get("g6.xlarge")
            == expected
        )


def test_within_a_type_only_workers_with_a_busy_share_count() -> None:
    assert observation_of(host("i-2", 9.0), host_with_busy_share(0.4, 0.5)).work_done == {
        "g6.xlarge": WorkDone(24.0, 30.0)
    }


def test_an_old_report_is_ignored() -> None:
    old = Worker(
        "ocr",
        "i-1",
        0,
        NOW - 900,
        NOW - 5,
        "ready",
        report=WorkerReport("1", reported_at=NOW - 600, rate=9.0),
    )
    assert observation_of(host("i-1", workers=(old,)), oldest=400.0).work_done == {}


def test_settings_survive_as_text_and_count_in_workers() -> None:
    written = ScalingSettings(1, 9, 4, 45.0, (Floor(3, 60, 120, frozenset({0, 6})),), dry_run=True)
    assert settings.parse(settings.dumps(written)) == written
    assert (written.bounds.minimum, written.bounds.maximum, written.bounds.floors[0].workers) == (4, 36, 12)
    assert [written.slots(workers) for workers in (0, 1, 4, 5, 36)] == [0, 1, 1, 2, 9]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max": 0}, "minimum must be from 0 to maximum, not 4 of 0"),
        ({"min": 10}, "minimum must be from 0 to maximum, not 40 of 36"),
        ({"perSlot": 0}, "a slot must have at least 1 worker, not 0"),
        ({"waitSeconds": "nan"}, "waitSeconds must be of type float, not 'nan'"),
        ({"floors": [[1, 2]]}, r"floors\[0\] must be a list of workers, start, end, days, not \[1, 2\]"),
        ({"floors": [[1, 5, 5, [0]]]}, r"floors\[0\]: floor of 1 from minute 5 to 5 is not a time of a day"),
        ({"min": None}, "min must be of type int, not None"),
    ],
)
def test_malformed_settings_are_rejected(changes: dict[str, Any], message: str) -> None:
    text = json.dumps({**json.loads(settings.dumps(ScalingSettings(1, 9, 4))), **changes})
    with pytest.raises(ValueError, match=f"^{message}"):
        settings.parse(text)
