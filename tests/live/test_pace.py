import math

import pytest

from rehearsal.machines.pace import Slowdown, Speeds

STOP, SLOW = Slowdown(100, 200), Slowdown(300, 400, 0.5)
PACE = Speeds((STOP, SLOW))


@pytest.mark.parametrize(
    ("begin", "end", "work"), [(0, 100, 100), (0, 200, 100), (150, 250, 50), (0, 400, 250), (350, 500, 125)]
)
def test_work_between_two_times_excludes_slowdowns(begin, end, work):
    assert PACE.work(begin, end) == work


@pytest.mark.parametrize(
    ("begin", "work", "end"),
    [(0, 100, 100), (0, 101, 201), (150, 0, 150), (150, 1, 201), (0, 225, 350), (0, 251, 401), (500, 7, 507)],
)
def test_work_is_done_when_so_much_fitted(begin, work, end):
    assert PACE.when(begin, work) == end


def test_work_that_stalls_forever_is_never_done():
    pace = Speeds((Slowdown(100, math.inf),))
    assert (pace.when(0, 100), pace.when(0, 101)) == (100, math.inf)
    assert (pace.still_until(99), pace.still_until(100)) == (99, math.inf)


def test_start_and_end_of_the_next_stall():
    assert [PACE.still_until(at) for at in (99, 100, 199, 200, 350)] == [99, 200, 200, 200, 350]
    assert [PACE.next_stop(at) for at in (0, 100)] == [100, math.inf]


@pytest.mark.parametrize(("begin", "end", "speed"), [(5, 5, 0), (5, 4, 0), (0, 1, 1), (0, 1, -0.1)])
def test_an_invalid_slowdown_is_rejected(begin, end, speed):
    with pytest.raises(ValueError, match=r"allowed|needed"):
        Slowdown(begin, end, speed)


def test_overlapping_slowdowns_are_rejected():
    with pytest.raises(ValueError, match="begins at 150, the previous one ends at 200"):
        Speeds((STOP, Slowdown(150, 160)))
