from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot_work import Batch
from spot_work.batching import Prefetch, gather, size_within


class Arrivals:
    """Items that arrive at given times, on a simulated clock."""

    def __init__(self, arrivals: list[float]) -> None:
        self.now = 0.0
        self._arrivals = sorted(arrivals)

    def clock(self) -> float:
        return self.now

    def receive(self, seconds: float) -> float | None:
        if self._arrivals and self._arrivals[0] <= self.now + seconds:
            self.now = max(self.now, self._arrivals[0])
            return self._arrivals.pop(0)
        self.now += seconds
        return None


@given(st.lists(st.floats(0, 10), max_size=40), st.integers(1, 8), st.floats(0, 2))
def test_batches_hold_all_items_in_order_within_size_and_wait_limits(
    arrivals: list[float], size: int, seconds: float
) -> None:
    arriving, items = Arrivals(arrivals), []
    while arriving.now < 11:
        batch = gather(Batch(size, seconds), arriving.receive, arriving.clock, 0.5)
        if not batch:
            continue
        assert len(batch) <= size
        # The wait starts when the first item arrives, or when the batch is started.
        assert len(batch) == size or arriving.now <= max(batch[0], arriving.now) + seconds
        items += batch
    assert items == sorted(arrivals)


def test_waiting_items_fill_the_batch_without_delay() -> None:
    arriving = Arrivals([0.0] * 20)
    assert len(gather(Batch(16, 5.0), arriving.receive, arriving.clock, 1.0)) == 16
    assert arriving.now == 0.0


def test_the_first_item_waits_for_the_maximum_wait() -> None:
    arriving = Arrivals([1.0, 1.05, 1.2])
    assert gather(Batch(16, 0.1), arriving.receive, arriving.clock, 2.0) == [1.0, 1.05]
    assert arriving.now == pytest.approx(1.1)


def test_a_batch_without_wait_time_takes_only_waiting_items() -> None:
    arriving = Arrivals([0.0, 0.1])
    assert gather(Batch(16, 0.0), arriving.receive, arriving.clock, 1.0) == [0.0]


@pytest.mark.parametrize(
    ("size", "seconds", "error"),
    [(0, 1.0, "size must be 1 or more, not 0"), (1, -1.0, r"seconds must be 0 or more, not -1\.0")],
)
def test_invalid_batches_are_rejected(size: int, seconds: float, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Batch(size, seconds)


def test_no_request_is_delivered_behind_a_long_batch() -> None:
    prefetch = Prefetch(4)
    assert (prefetch.idle, prefetch.running(1), prefetch.running(4)) == (4, 0, 4)
    for _ in range(30):
        prefetch.record(0.01)
    assert (prefetch.idle, prefetch.running(1), prefetch.running(4)) == (8, 8, 8)
    for _ in range(5):
        prefetch.record(2.0)
    assert (prefetch.idle, prefetch.running(3)) == (4, 0)


def test_many_of_the_shortest_batches_are_delivered_ahead() -> None:
    one, sixteen, large = (Prefetch(size, max_batches_ahead=127) for size in (1, 16, 100))
    for _ in range(90):
        for prefetch in (one, sixteen, large):
            prefetch.record(0.0001)
    assert 64 <= one.idle <= 128
    assert 64 <= sixteen.idle <= 128
    assert large.idle == 200


@given(st.lists(st.floats(0.0, 0.09), min_size=1, max_size=5), st.integers(1, 32))
def test_what_is_delivered_ahead_is_soon_done(means: list[float], size: int) -> None:
    prefetch = Prefetch(size, max_batches_ahead=127)
    for mean in means:
        for _ in range(200):
            prefetch.record(mean)
        ahead = prefetch.idle // size - 1
        assert ahead == 1 or ahead * mean <= 0.08


def test_the_requests_ahead_change_only_for_half_or_twice_as_many() -> None:
    prefetch, counts = Prefetch(1, max_batches_ahead=127), []
    for mean in (0.001, 0.0014, 0.0008, 0.003, 0.0002):
        for _ in range(200):
            prefetch.record(mean)
        counts.append(prefetch.idle)
    assert counts[0] == counts[1] == counts[2] > 2 * counts[3]
    assert counts[4] > 2 * counts[3]


def test_requests_of_the_overflow_function_come_on_top() -> None:
    prefetch = Prefetch(2, overflow_threads=4)
    prefetch.record(30.0)
    assert (prefetch.idle, prefetch.running(2)) == (6, 0)  # a batch, and one for each thread


def test_items_on_their_way_are_in_the_batch() -> None:
    arriving = Arrivals([0.0, 0.004, 0.008, 0.5])
    assert len(gather(Batch(16), arriving.receive, arriving.clock, 1.0, 0.01)) == 3


@pytest.mark.parametrize(
    ("timeout", "size", "count", "seconds", "next_size"),
    [
        (None, 8, 8, 9_000.0, 8),  # unknown
        (1800.0, 8, 8, 900.0, 8),
        (1800.0, 8, 8, 1000.0, 7),
        (1800.0, 8, 8, 100_000.0, 1),
        (1800.0, 1, 1, 2_000.0, 1),  # one request cannot be split
        (1800.0, 7, 3, 10.0, 7),  # not a full batch
        (1800.0, 7, 7, 800.0, 7),
        (1800.0, 4, 4, 200.0, 8),  # it is fast again
        (1800.0, 6, 6, 200.0, 8),  # up to the batch's
    ],
)
def test_a_batch_takes_at_most_half_of_the_time_to_settle_it(
    timeout: float | None, size: int, count: int, seconds: float, next_size: int
) -> None:
    assert size_within(timeout, Batch(8), size, count, seconds) == next_size
