"""What the scaler sees of hosts: who serves, who boots, and what workers can do where they had work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import Backlog
from contracts.registry.worker_report import Pulse
from lambdas.core.health.model import WorkerHost
from lambdas.core.scaling.model import LoadObservation, WorkDone
from lambdas.core.scaling.observation import observe
from lambdas.core.scaling.throughput import Throughput

NOW = 1_767_571_200.0
KNOWN = Throughput({"g6.xlarge": (60.0, 120.0)}, NOW - 60)
"""A worker ends one request in two seconds."""


def host(name: str, rate: float = 0.4, **more: Any) -> WorkerHost:
    told = Worker("ocr", name, 0, NOW - 900, NOW - 5, "ready", pulse=Pulse("1", at=NOW - 5, rate=rate))
    return WorkerHost(name, **{"workers": (told,), "expected": 1, "launched_at": NOW - 3600, **more})


def seen(*hosts: WorkerHost, oldest: float = 0.0, throughput: Throughput = KNOWN) -> LoadObservation:
    queue = Backlog(NOW - 30, int(oldest > 0), 1, oldest, 1.0, 1.0, 1)
    types = {one.id: "g6.xlarge" for one in hosts if not one.on_premises}
    return observe(NOW, 4, queue, hosts, types, 120.0, throughput)


def test_who_serves_counts_by_type_and_who_leaves_does_not() -> None:
    leaving = Worker("ocr", "i-4", 0, NOW - 900, NOW - 5, "ready", deadline=NOW + 60)
    late = Worker("ocr", "i-5", 0, NOW - 900, NOW - 500, "ready")
    observation = seen(
        host("i-1"),
        host("i-2"),
        host("i-3", spared="doomed"),
        host("i-4", workers=(leaving,)),
        host("i-5", workers=(late,)),
        host("gpu-1", launched_at=None),
    )
    assert observation.ready == {"g6.xlarge": 2, "on-premises": 1}
    assert (observation.booting, observation.elsewhere) == (0, {})


@pytest.mark.parametrize(
    ("on_demand", "bought", "scarce"),
    [
        (0, (), False),
        (0, (1,), True),
        (1, (1,), False),  # the mix's own
        (1, (1, 1), True),
        (1, (4,), False),  # the mix's own, in one instance of four
        (4, (4, 4), True),
    ],
)
def test_spot_is_scarce_where_on_demand_stands_in_beyond_the_mix(
    on_demand: int, bought: tuple[int, ...], scarce: bool
) -> None:
    known = [host(f"i-{n}", expected=count) for n, count in enumerate(bought)]
    known += [host("i-spot", spot=True), host("gpu-1", launched_at=None), host("i-leaves", spared="released")]
    assert observe(NOW, 4, None, known, {}, 120.0, KNOWN, on_demand).scarce is scarce


def test_who_was_launched_a_while_ago_and_shows_nothing_boots_no_more() -> None:
    observation = seen(
        host("i-1", workers=(), expected=4, launched_at=NOW - 60),
        host("i-2", workers=(), expected=4, launched_at=NOW - 600),
    )
    assert observation.booting == 4


@pytest.mark.parametrize(
    ("rate", "oldest", "seconds"),
    [
        (0.4, 0.0, 48.0),  # not all of the minute: at the pace that is known
        (0.4, 120.0, 48.0),  # the rate is of five minutes, and then there was not always work
        (0.4, 400.0, 60.0),  # slower than was known
        (0.8, 0.0, 60.0),  # faster
    ],
)
def test_a_rate_is_a_pace_only_where_there_was_always_work(
    rate: float, oldest: float, seconds: float
) -> None:
    assert seen(host("i-1", rate), oldest=oldest).served == {"g6.xlarge": WorkDone(60 * rate, seconds)}


@pytest.mark.parametrize(("oldest", "told"), [(0.0, {}), (90.0, {"g6.xlarge": WorkDone(24.0, 60.0)})])
def test_of_a_type_never_measured_the_first_minute_in_which_requests_wait_tells(
    oldest: float, told: dict[str, WorkDone]
) -> None:
    assert seen(host("i-1"), oldest=oldest, throughput=Throughput()).served == told


@pytest.mark.parametrize(
    ("use", "told"),
    [(None, {}), (2.0, {}), (50.0, {"g6.xlarge": WorkDone(24.0, 30.0)})],
)
def test_a_first_guess_is_how_busy_gpus_were(use: float | None, told: dict[str, WorkDone]) -> None:
    pulse = Pulse("1", at=NOW - 5, rate=0.4, gpu_use=use)
    worker = Worker("ocr", "i-1", 0, NOW - 900, NOW - 5, "ready", pulse=pulse)
    assert seen(host("i-1", workers=(worker,)), throughput=Throughput()).served == told


def telling(rate: float, busy: float | None, **more: Any) -> WorkerHost:
    pulse = Pulse("1", at=NOW - 5, rate=rate, busy=busy)
    return host("i-1", workers=(Worker("ocr", "i-1", 0, NOW - 900, NOW - 5, "ready", pulse=pulse),), **more)


@pytest.mark.parametrize(
    ("rate", "busy", "oldest", "told"),
    [
        (0.4, 0.5, 0.0, WorkDone(24.0, 30.0)),  # faster than was known, without ever being asked for more
        (0.1, 0.8, 0.0, WorkDone(6.0, 48.0)),  # slower, and nobody waits yet
        (0.0, 0.0, 0.0, None),
        (0.4, 0.5, 400.0, WorkDone(24.0, 60.0)),  # there was always work, whatever it says
    ],
)
def test_who_says_for_how_long_it_had_work_is_measured_without_a_queue(
    rate: float, busy: float, oldest: float, told: WorkDone | None
) -> None:
    for throughput in (KNOWN, Throughput()):
        assert seen(telling(rate, busy), oldest=oldest, throughput=throughput).served.get("g6.xlarge") == told


def test_of_a_type_those_count_that_say_it() -> None:
    assert seen(host("i-2", 9.0), telling(0.4, 0.5)).served == {"g6.xlarge": WorkDone(24.0, 30.0)}


def test_what_was_told_long_ago_says_nothing_of_now() -> None:
    old = Worker("ocr", "i-1", 0, NOW - 900, NOW - 5, "ready", pulse=Pulse("1", at=NOW - 600, rate=9.0))
    assert seen(host("i-1", workers=(old,)), oldest=400.0).served == {}


def test_settings_come_back_as_they_were_and_count_in_workers() -> None:
    told = ScalingSettings(1, 9, 4, 45.0, (Floor(3, 60, 120, frozenset({0, 6})),), dry_run=True)
    assert settings.parse(settings.dumps(told)) == told
    assert (told.bounds.minimum, told.bounds.maximum, told.bounds.floors[0].workers) == (4, 36, 12)
    assert [told.slots(workers) for workers in (0, 1, 4, 5, 36)] == [0, 1, 1, 2, 9]


@pytest.mark.parametrize(
    "changes",
    [
        {"max": 0},
        {"min": 10},
        {"perSlot": 0},
        {"waitSeconds": "nan"},
        {"floors": [[1, 2]]},
        {"floors": [[1, 5, 5, [0]]]},
        {"min": None},
    ],
)
def test_settings_that_the_program_does_not_write_are_refused(changes: dict[str, Any]) -> None:
    text = json.dumps({**json.loads(settings.dumps(ScalingSettings(1, 9, 4))), **changes})
    with pytest.raises(ValueError, match="settings of scaling make no sense"):
        settings.parse(text)
