"""The number of workers that a queue needs, by its messages alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.registry.http_state import HttpState
from contracts.registry.queue_state import QueueState
from lambdas.core.scaling.by_queue import workers_for_queue, workers_for_requests
from lambdas.handlers.queues import gauges_of

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
        (0, 4, 1, 1),  # SQS, whose consumers are not known
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


def requests(waiting: int, in_flight: int, *, arriving: float = 0.0, refused: float = 0.0) -> HttpState:
    return HttpState(0.0, waiting, in_flight, 0.0, arriving, 0.0, refused, 2)


@pytest.mark.parametrize(
    ("state", "workers"),
    [
        (requests(0, 0), 0),
        (requests(0, 0, arriving=0.1), 1),  # between two short requests
        (requests(0, 0, refused=0.1), 1),  # without a worker each is refused
        (requests(0, 7), 1),
        (requests(0, 8), 2),
        (requests(63, 7), 10),
        (requests(64, 7), 11),
    ],
)
def test_workers_serve_seven_tenths_of_what_they_can_at_once(state: HttpState, workers: int) -> None:
    """Knative's rule and default: requests ÷ (concurrency of a pod x 0.7)."""
    assert workers_for_requests(state, 10) == workers


@given(COUNTS, COUNTS, st.integers(1, 1000))
def test_workers_have_room_for_all_requests(waiting: int, in_flight: int, concurrency: int) -> None:
    workers = workers_for_requests(requests(waiting, in_flight), concurrency)
    assert workers * concurrency >= waiting + in_flight
    assert workers_for_requests(requests(waiting + 1, in_flight), concurrency) >= workers


def test_the_watcher_emits_it_where_keda_scales() -> None:
    assert gauges_of(state(0, 3, 8), 5)[names.METRIC_QUEUE_WORKERS] == 3
    assert names.METRIC_QUEUE_WORKERS not in gauges_of(state(0, 3, 8))
