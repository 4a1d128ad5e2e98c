from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot_work import Batch
from spot_work.batching import gather


class Line:
    """What comes when, on a clock of its own."""

    def __init__(self, arrivals: list[float]) -> None:
        self.now = 0.0
        self._arrivals = sorted(arrivals)

    def clock(self) -> float:
        return self.now

    def take(self, seconds: float) -> float | None:
        if self._arrivals and self._arrivals[0] <= self.now + seconds:
            self.now = max(self.now, self._arrivals[0])
            return self._arrivals.pop(0)
        self.now += seconds
        return None


@given(st.lists(st.floats(0, 10), max_size=40), st.integers(1, 8), st.floats(0, 2))
def test_every_task_is_in_one_batch_in_order_and_none_is_too_large_or_waits_too_long(
    arrivals: list[float], size: int, seconds: float
) -> None:
    line, found = Line(arrivals), []
    while line.now < 11:
        batch = gather(Batch(size, seconds), line.take, line.clock, 0.5)
        if not batch:
            continue
        assert len(batch) <= size
        # It waited from the first one's coming, or from when we came to it.
        assert len(batch) == size or line.now <= max(batch[0], line.now) + seconds
        found += batch
    assert found == sorted(arrivals)


def test_what_waits_already_fills_the_batch_at_once() -> None:
    line = Line([0.0] * 20)
    assert len(gather(Batch(16, 5.0), line.take, line.clock, 1.0)) == 16
    assert line.now == 0.0


def test_the_first_waits_as_long_as_it_may_and_no_longer() -> None:
    line = Line([1.0, 1.05, 1.2])
    assert gather(Batch(16, 0.1), line.take, line.clock, 2.0) == [1.0, 1.05]
    assert line.now == pytest.approx(1.1)


def test_with_no_time_nobody_waits() -> None:
    line = Line([0.0, 0.1])
    assert gather(Batch(16, 0.0), line.take, line.clock, 1.0) == [0.0]


@pytest.mark.parametrize(("size", "seconds", "said"), [(0, 1.0, "size 0"), (1, -1.0, "seconds -1.0")])
def test_what_is_no_batch_is_refused(size: int, seconds: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Batch(size, seconds)
