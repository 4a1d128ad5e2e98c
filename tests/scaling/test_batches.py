"""Batch times, so that the scaler has one fixed point; workers by a queue's messages alone."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.group.scaling_settings import Bounds
from contracts.registry.batches import BatchRow, difference
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.scaling import memory as scaling_memory
from lambdas.core.scaling.batches import BatchesDone, BatchTime, BatchTimes, LearnedBatches, WorkerSpeed
from lambdas.core.scaling.memory import COOLDOWN_SECONDS, ScalingMemory
from lambdas.core.scaling.model import Load, LoadObservation
from lambdas.core.scaling.queue_source import QueueSource, workers_for_queue
from lambdas.core.scaling.staffing import Demand, late_probability, min_workers, permitted_batch
from lambdas.core.scaling.throughput import Throughput
from lambdas.handlers.queues import gauges_of
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from research.parts.batched_scaling import Blind, ours
from research.simulation.load.batched import play_batches
from research.simulation.load.checked import CheckedFleet
from research.simulation.load.replay import play, reversals
from research.simulation.load.scaler_rule import ScalerRule

NOW = 1_800_000_000.0


def learned(time: BatchTime, sizes: list[int], minutes: int = 60) -> LearnedBatches:
    """Return what is learned from ten batches of each size a minute."""
    result = LearnedBatches()
    rows = {
        1 << (size - 1).bit_length(): (10.0, 10.0 * size, 10.0 * (time.fixed + time.per_request * size))
        for size in sizes
    }
    for _ in range(minutes):
        result = result.update(BatchesDone(rows, int(time.max_size)))
    return result


@given(st.floats(0, 20), st.floats(0.01, 20))
def test_batches_of_two_sizes_give_the_batch_time(fixed: float, each: float) -> None:
    fit = learned(BatchTime(fixed, each, 16), [1, 16]).fit()
    for size in (1, 4, 16):
        assert fit.fixed + fit.per_request * size == pytest.approx(fixed + each * size, rel=0.05)
    assert fit.max_size == 16


def test_batches_of_one_size_have_the_prior_and_count_up_to_twice_it() -> None:
    fit = learned(BatchTime(8, 0.25, 16), [1]).fit()
    assert (fit.fixed, fit.per_request) == pytest.approx((8.25 / 2, 8.25 / 2))
    assert fit.max_size == 2


def test_idle_time_does_not_make_large_batches_unknown() -> None:
    busy = learned(BatchTime(8, 0.25, 16), [1, 4, 16], minutes=10)
    for _ in range(1000):
        busy = busy.update(BatchesDone({1: (10.0, 10.0, 82.5)}, 16))
    fit = busy.fit()
    assert fit.max_size == 16
    assert fit.rate(16) == pytest.approx(16 / 12, rel=0.02)


def test_no_batches_are_unknown_and_a_rate_is_one_request_at_a_time() -> None:
    assert LearnedBatches().fit() is None
    assert BatchTimes().speed(Throughput(), {"g6": 1}) is None
    speed = BatchTimes().speed(Throughput({"g6": (30.0, 120.0)}, NOW), {"g6": 3})
    assert (speed.rate(1), speed.rate(16), speed.max_size) == (0.25, 0.25, 1)


def test_workers_with_and_without_a_table_are_reckoned_together() -> None:
    times = BatchTimes({"g6": learned(BatchTime(2, 2, 8), [1, 8])})
    speed = times.speed(
        Throughput({"g6": (1.0, 9.0), "g5": (30.0, 120.0)}, NOW), {"g6": 1, "g5": 1, "new": 2}
    )
    assert speed.rate(8) == pytest.approx((8 / 18 + 0.25) / 2, rel=0.02)
    assert speed.rate(1) == pytest.approx((1 / 4 + 0.25) / 2, rel=0.05)


@given(st.floats(0, 20), st.floats(0.01, 5), st.integers(1, 64), st.floats(0.1, 500))
def test_the_size_within_a_time_is_the_largest(fixed: float, each: float, size: int, seconds: float) -> None:
    speed = WorkerSpeed(((1.0, BatchTime(fixed, each, size)),))
    found = speed.size_within(seconds)
    assert 1 <= found <= size
    if found > 1:
        assert speed.seconds(found) <= seconds + 1e-6
    if found < size:
        assert speed.seconds(min(size, found * 1.001)) > seconds


def test_the_allowed_wait_bounds_the_batch() -> None:
    speed = WorkerSpeed(((1.0, BatchTime(8, 0.25, 16)),))
    assert permitted_batch(speed, 1, 60)[0] == 16
    size, until_free = permitted_batch(speed, 1, 10)
    assert (size, until_free) == (
        pytest.approx((10 / 0.99 - 8) / 0.25, rel=0.01),
        pytest.approx(10, rel=0.01),
    )
    assert permitted_batch(speed, 8, 10)[0] == 16  # one of eight ends its batch earlier
    assert permitted_batch(WorkerSpeed(((1.0, BatchTime(0.0, 4.0)),)), 1, 10) == (1.0, 0.0)


def test_a_batch_that_may_not_wait_needs_more_workers() -> None:
    speed, demand = WorkerSpeed(((1.0, BatchTime(8, 0.25, 16)),)), Demand(5, 0, 240)
    needed = [min_workers(lambda _: demand, speed, wait, 200) for wait in (60, 10, 3)]
    assert needed == sorted(needed)
    assert needed[0] == 4  # 5 requests a second, 1.33 a worker
    assert late_probability(demand, speed, needed[2], 3) <= 0.01


@pytest.mark.parametrize("time", [BatchTime(8, 0.25, 16), BatchTime(2, 2, 8), BatchTime(0.2, 4, 8)])
def test_the_target_ends_the_same_from_one_worker_and_from_the_maximum(time: BatchTime) -> None:
    rate = 5.5 * time.rate(time.max_size)
    arrivals = np.random.default_rng(1).poisson(rate, 6 * 3600)
    ends = {}
    for kind in (type(ours()), Blind):
        played = [play_batches(arrivals, time, ours(kind=kind), 180.0, 80, first=n) for n in (1, 80)]
        ends[kind] = [float(outcome.targets[-360:].mean()) for outcome in played]
        if kind is not Blind:
            assert max(outcome.p99(3 * 3600, 6 * 3600) for outcome in played) <= 60
    low, high = sorted(ends[type(ours())])
    assert high <= 7  # 5.5 at the largest batch: six, and one at times
    assert high - low <= 0.07 * high  # after late requests more workers are held, for a day
    if time.fixed > 1:
        assert max(ends[Blind]) > 1.15 * high  # small batches, so a small rate, so more workers


@pytest.mark.parametrize("seed", range(24))
def test_a_step_of_the_load_is_answered_with_what_its_backlog_needs(seed: int) -> None:
    draw = random.Random(seed)
    boot, wait = draw.choice((60.0, 180.0, 300.0, 600.0)), draw.choice((5.0, 30.0, 300.0))
    high, service = (50.0, 0.6) if seed == 0 else (draw.uniform(4, 30), draw.uniform(0.3, 5))
    low, step, lead = (0.0 if seed == 0 else draw.uniform(0, 0.5)) * high, 1800, boot + 60
    before = math.ceil(low * service) + 1
    rates = np.where(np.arange(int(step + 4 * boot + 900)) < step, low, high)
    arrivals = np.random.default_rng(seed).poisson(rates)
    rule = ScalerRule(Bounds(wait, 1, 10_000), boot)
    played = play_batches(arrivals, BatchTime(0, service), rule, boot, 10_000, first=before)
    # Who knows the load orders a minute after the step, with the same reserve, and clears in a boot.
    targets = played.targets[step // 30 :]
    backlog = (60 + lead) * max(0.0, high - before / service)
    needed = max(1.0, (backlog / high + lead) / (lead + wait)) * targets[-1]
    assert high * service <= targets.max() <= 1.3 * needed + 2


def report(rows: tuple[BatchRow, ...] | None, size: int | None) -> Worker:
    worker_report = WorkerReport(
        "v1", reported_at=NOW, done=10, rate=1.0, busy=0.5, batches=rows, batch_size=size
    )
    return Worker("ocr", "i-1", 0, NOW, NOW, report=worker_report)


def test_the_reports_of_a_type_are_added() -> None:
    source = QueueSource(QueueState(NOW, 0, 0, 0, 1, 1, 2))
    workers = {
        "g6": [report((BatchRow(1, 5, 5, 10.0), BatchRow(4, 10, 35, 50.0, 4)), 8), report((), 4)],
        "old": [report(None, None)],
    }
    [(name, done)] = source.batches(NOW, workers).items()
    assert (name, done.max_size) == ("g6", 8)
    assert done.rows == {1: (1.0, 1.0, 2.0), 4: (2.0, 7.0, 10.0)}
    assert done.waiting_seconds == pytest.approx(5.0)  # four of forty waited for batches of 5 s
    rare = {"g6": [report((BatchRow(4, 1000, 3500, 5000.0, 30),), 8)]}
    assert source.batches(NOW, rare)["g6"].waiting_seconds == 0.0


def test_a_request_behind_a_batch_counts_as_late_earlier() -> None:
    in_time = LoadObservation(NOW, 4, Load(NOW, 4.0, 9, 4, 55.0, 4.0), {"g6": 4}, 0, {}, 180.0)
    behind = {"g6": BatchesDone({1: (1.0, 1.0, 9.0)}, 8, waiting_seconds=9.0)}
    factors = [
        ScalingMemory().update(observation, 60.0).staffed_wait.factor
        for observation in (in_time, replace(in_time, batches=behind))
    ]
    assert factors[1] < 1.0 < factors[0]


def test_a_memory_of_the_earlier_version_is_read() -> None:
    memory = ScalingMemory(throughput=Throughput({"g6": (30.0, 120.0)}, NOW))
    text = json.loads(scaling_memory.dump(memory))
    del text["batchTimes"]
    assert scaling_memory.parse(json.dumps(text)) == memory


def test_what_is_learned_is_stored() -> None:
    memory = ScalingMemory(batch_times=BatchTimes({"g6": learned(BatchTime(8, 0.25, 16), [1, 4, 16])}))
    assert scaling_memory.parse(scaling_memory.dump(memory)) == memory


def test_the_batches_between_two_tables() -> None:
    before = (BatchRow(1, 5, 5, 2.0), BatchRow(4, 2, 7, 3.0, 1))
    after = (BatchRow(1, 5, 5, 2.0), BatchRow(4, 5, 18, 8.5, 1), BatchRow(8, 1, 6, 4.0))
    assert difference(after, before) == (BatchRow(4, 3, 11, 5.5), BatchRow(8, 1, 6, 4.0))
    assert difference(before, ()) == before


COUNTS = st.integers(0, 500)


def state(ready: int, in_flight: int, consumers: int) -> QueueState:
    return QueueState(0.0, ready, in_flight, 0.0, 0.0, 0.0, consumers)


@pytest.mark.parametrize(
    ("ready", "in_flight", "consumers", "workers"),
    [
        (0, 0, 8, 0),
        (0, 8, 8, 8),  # KEDA's AMQP scaler: ready messages only, 0
        (0, 3, 8, 3),
        (1, 8, 8, 9),
        (11, 8, 8, 11),
        (0, 160, 8, 32),  # batches: as many as for requests that wait
        (0, 0, 0, 0),
        (12, 0, 0, 3),
        (0, 8, 1, 2),  # one consumer with batches
    ],
)
def test_workers_in_work_stay_and_waiting_requests_add_some(
    ready: int, in_flight: int, consumers: int, workers: int
) -> None:
    assert workers_for_queue(state(ready, in_flight, consumers), 5) == workers


@given(COUNTS, COUNTS, COUNTS, st.integers(1, 50))
def test_no_worker_in_work_is_too_many(ready: int, in_flight: int, consumers: int, per_worker: int) -> None:
    workers = workers_for_queue(state(ready, in_flight, consumers), per_worker)
    assert workers >= min(in_flight, consumers)
    assert workers * per_worker >= ready + min(in_flight, consumers)
    assert workers_for_queue(state(ready + 1, in_flight, consumers), per_worker) >= workers
    if ready + in_flight == 0:
        assert workers == 0


def test_the_watcher_emits_it_where_keda_scales() -> None:
    assert gauges_of(state(0, 3, 8), 5)[names.METRIC_QUEUE_WORKERS] == 3
    assert names.METRIC_QUEUE_WORKERS not in gauges_of(state(0, 3, 8))


ZONES = [PoolTrace(f"zone{n}_g6.xlarge", 60.0, (1,) * 400) for n in range(2)]


@pytest.mark.parametrize("unhealthy_share", [0.0, 0.3])
def test_unhealthy_instances_are_replaced_and_the_target_is_stable(unhealthy_share: float) -> None:
    fleets: list[CheckedFleet] = []

    def build(*arguments: Any, **more: Any) -> CheckedFleet:
        fleets.append(
            CheckedFleet(*arguments, unhealthy_share=unhealthy_share, chance=random.Random(3), **more)
        )
        return fleets[-1]

    rules = Rules(seed=1)
    arrivals = np.random.default_rng(1).poisson(2.0, 5 * 3600)
    rule = ScalerRule(Bounds(60.0, 1, 40), 180.0)
    result = play(SpotMarket(ZONES, rules, 80), rules, rule, arrivals, {"g6.xlarge": 0.25}, 40, build)
    [fleet] = fleets
    replaced = {
        instance_id for instance_id in fleet.replaced_on_request if instance_id not in fleet._instances
    }
    assert bool(replaced) == bool(unhealthy_share)
    assert reversals(result.targets.tolist(), int(COOLDOWN_SECONDS // 60)) == 0
    # Eight workers suffice; unhealthy ones are compensated and replaced.
    assert result.targets[-60:].mean() < 24
    assert np.percentile(fleet.queue.waits(4 * 3600), 50) < 60
