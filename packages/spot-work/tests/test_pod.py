"""The cost of a pod's deletion, by which a cluster ends workers without work first."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spot_work.pod import ANNOTATION, DeletionCost


class Cluster:
    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[tuple[float, str]] = []
        self.is_down = False
        self.cost = DeletionCost(self.annotate, lambda: self.now, lambda least, _: least)

    def annotate(self, key: str, value: str) -> None:
        assert key == ANNOTATION
        if self.is_down:
            raise ConnectionError("down")
        self.written.append((self.now, value))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.cost.step()


def test_a_worker_with_a_long_request_costs_more_until_it_is_done() -> None:
    cluster = Cluster()
    cluster.run(20)
    cluster.cost.set_working(True)
    cluster.run(100)
    cluster.cost.set_working(False)
    cluster.run(60)
    assert cluster.written == [(80.0, "1"), (180.0, "0")]


@pytest.mark.parametrize("seconds", [3, 59])
def test_short_requests_are_not_written(seconds: int) -> None:
    cluster = Cluster()
    for second in range(1200):
        cluster.cost.set_working(second % (2 * seconds) < seconds)
        cluster.run(1)
    assert cluster.written == []


@pytest.mark.parametrize("seconds", [61, 90, 200])
def test_a_worker_writes_once_a_minute_at_the_most(seconds: int) -> None:
    cluster = Cluster()
    for second in range(1200):
        cluster.cost.set_working(second % (2 * seconds) < seconds)
        cluster.run(1)
    assert 0 < len(cluster.written) <= 1200 / 60


def test_workers_that_change_at_once_do_not_write_at_once() -> None:
    now, written, draws = 0.0, Counter[float](), random.Random(1)
    costs = [DeletionCost(lambda *_: written.update([now]), lambda: now, draws.uniform) for _ in range(1000)]
    for cost in costs:
        cost.set_working(True)
    while now < 200:
        now += 1
        for cost in costs:
            cost.step()
    assert written.total() == 1000
    assert max(written.values()) < 1000 / 20


def test_requests_without_a_pause_are_one_time_of_work() -> None:
    cluster = Cluster()
    for _ in range(600):
        cluster.cost.set_working(True)
        cluster.run(1)
    assert [value for _, value in cluster.written] == ["1"]


def test_a_failure_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.is_down = True
    cluster.cost.set_working(True)
    cluster.run(150)
    cluster.is_down = False
    cluster.run(30)
    assert [value for _, value in cluster.written] == ["1"]
    assert len([record for record in caplog.records if "deletion" in record.message]) == 1


def test_outside_a_cluster_there_is_no_pod() -> None:
    assert DeletionCost.from_environment({}) is None
    assert DeletionCost.from_environment({"SPOT_WORK_POD": "a"}) is None
