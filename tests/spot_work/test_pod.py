"""The cost of a pod's deletion, by which a cluster ends workers without work first."""

from __future__ import annotations

import pytest

from spot_work.pod import ANNOTATION, DeletionCost


class Cluster:
    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[tuple[float, str]] = []
        self.is_down = False
        self.cost = DeletionCost(self.annotate, lambda: self.now)

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
    cluster.run(60)
    cluster.cost.set_working(False)
    cluster.run(60)
    assert cluster.written == [(25.0, "1"), (85.0, "0")]


def test_short_requests_are_not_written() -> None:
    cluster = Cluster()
    for second in range(600):
        cluster.cost.set_working(second % 4 < 3)
        cluster.run(1)
    assert cluster.written == []


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
    cluster.run(90)
    cluster.is_down = False
    cluster.run(30)
    assert [value for _, value in cluster.written] == ["1"]
    assert len([record for record in caplog.records if "deletion" in record.message]) == 1


def test_outside_a_cluster_there_is_no_pod() -> None:
    assert DeletionCost.from_environment({}) is None
    assert DeletionCost.from_environment({"SPOT_WORK_POD": "a"}) is None
