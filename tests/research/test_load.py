"""The replay of a load: its queue, its shapes, and published scaling rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.batches import BatchesDone
from research.simulation.load.queue import RequestQueue
from research.simulation.load.rules import Keda, TargetTracking, View
from research.simulation.load.scaler_rule import HttpRule
from research.simulation.load.shapes import SHAPES, LoadShape


def arrivals(*rates: float) -> np.ndarray:
    """Return one minute of each rate, evenly spread."""
    return np.concatenate([np.diff(np.floor(np.arange(61) * rate)) for rate in rates]).astype(np.int64)


def test_no_request_waits_while_workers_are_idle() -> None:
    queue = RequestQueue(arrivals(1, 1, 1), 1)
    minutes = [queue.minute({0.25: 40}) for _ in range(3)]
    assert [m.arrived for m in minutes] == [60, 60, 60]
    assert queue.waits().max() == 0
    assert sum(m.busy_seconds for m in minutes) == pytest.approx(180 / 0.25, rel=0.2)


def test_requests_without_workers_wait_for_the_first_worker() -> None:
    queue = RequestQueue(arrivals(1, 0, 0), 1)
    assert queue.minute({}).waiting == 60
    assert queue.minute({}).oldest >= 118
    queue.minute({0.25: 1000})
    waits = queue.waits()
    assert (waits.min(), waits.max()) == (61, 120)


def test_requests_of_a_terminated_worker_return_to_the_queue() -> None:
    queue = RequestQueue(arrivals(1, 0), 1)
    before = queue.minute({0.001: 100})
    after = queue.minute({})
    assert before.started + before.ended == 60
    assert (after.started, after.waiting, after.arrived) == (0, before.started, 0)


def test_mm_n_in_the_long_run_matches_erlang_c() -> None:
    coming = np.random.default_rng(7).poisson(5.0, 86400)
    queue = RequestQueue(coming.astype(np.int64), 7)
    for _ in range(1440):
        queue.minute({0.25: 22})
    # Erlang C of 20 Erlang on 22 workers is 0.53; half of the waiting requests wait longer than 1.4 s.
    assert np.mean(queue.waits() > 10) == pytest.approx(0.53 * np.exp(-0.5 * 10), abs=0.02)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_load_is_the_same_for_the_same_seed_and_has_its_shape(shape: LoadShape) -> None:
    rates = shape.rates(7, 3)
    assert np.array_equal(shape.arrivals(7, 3), shape.arrivals(7, 3))
    assert not np.array_equal(shape.arrivals(7, 3), shape.arrivals(7, 4))
    by_hour = np.median(rates.reshape(7, 24, 3600), axis=(0, 2))
    assert by_hour[13:16].mean() > 1.5 * by_hour[1:5].mean()
    assert (rates == 0).sum() >= 3600


def view(minute: int, target: int = 10, *, waiting: int = 0, taken: int = 0, rate: float = 0.0) -> View:
    return View(60.0 * minute, target, {"t": target}, 0, rate, rate, waiting, taken, 0, taken / target, {})


def test_proxies_see_how_many_requests_are_at_a_worker_a_minute_later() -> None:
    rule = HttpRule(Bounds(60, 1, 50), 180.0)
    for minute, rate in enumerate((2.0, 4.0, 8.0)):
        rows = {4: (10.0, 40.0, 40.0), 16: (10.0, 160.0, 120.0)}
        now = view(minute, rate=rate)
        rule.target(replace(now, batches={"t": BatchesDone(rows, 16)}))
    assert [rate for _, rate in rule.memory.arrivals] == [2.0, 2.0, 4.0]
    [row] = rule.memory.batch_times.by_type["t"].rows.values()
    # 40 s with four and 120 s with sixteen of them: 13 at once
    assert row[1] / row[0] == pytest.approx(13.0)
    assert row[1] / row[2] == pytest.approx(200 / 160)


def seen(**fields: Any) -> View:
    quiet = {"now": 0.0, "target": 4, "ready": {"a": 4}, "booting": 0, "arriving": 0.0, "leaving": 1.0}
    none = {"waiting": 0, "in_flight": 0, "oldest": 0, "busy": 0.0, "served": {}}
    return View(**{**quiet, **none, **fields})


@pytest.mark.parametrize(
    ("triggers", "view", "target"),
    [
        ([("length", 5.0)], seen(waiting=41), 9),
        ([("unacknowledged", 5.0)], seen(waiting=40, in_flight=6), 10),
        ([("rate", 0.5)], seen(arriving=4.2), 9),
        ([("delivered", 0.5)], seen(leaving=4.2), 9),
        ([("ratio", 1.0)], seen(arriving=3.0, leaving=1.5), 8),
        ([("seconds", 10.0)], seen(waiting=30, leaving=1.0), 12),
        # The larger of two counts; a tenth more than there are changes nothing.
        ([("rate", 0.5), ("length", 5.0)], seen(arriving=4.2, waiting=60), 12),
        ([("rate", 1.0), ("length", 5.0)], seen(arriving=4.3, waiting=1), 4),
        # Nothing leaves an empty queue, and nothing leaves a stuck one.
        ([("seconds", 10.0)], seen(leaving=0.0), 1),
        ([("ratio", 1.0)], seen(arriving=0.01, leaving=0.0), 40),
    ],
)
def test_keda_takes_the_largest_of_its_triggers(
    triggers: list[tuple[str, float]], view: View, target: int
) -> None:
    assert Keda(triggers).target(view) == target


def test_keda_scales_in_to_the_maximum_of_its_window() -> None:
    rule = Keda([("rate", 1.0)])
    assert rule.target(seen(arriving=9.0)) == 9
    assert rule.target(seen(now=299.0, target=9, arriving=2.0)) == 9
    assert rule.target(seen(now=301.0, target=9, arriving=2.0)) == 2


@pytest.mark.parametrize(("period", "minutes"), [(60.0, 3), (10.0, 1)])
def test_target_tracking_scales_out_after_three_periods(period: float, minutes: int) -> None:
    rule = TargetTracking("backlog", 1.0, period=period)
    targets = [rule.target(seen(now=60.0 * minute, waiting=16)) for minute in range(minutes)]
    assert targets == [4] * (minutes - 1) + [16]
