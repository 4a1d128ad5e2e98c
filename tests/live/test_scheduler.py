from __future__ import annotations

import threading

import pytest

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines import scheduler
from rehearsal.machines.scheduler import Scheduler, SimulatedClock


class Stage:
    """A scheduler whose tasks write down when they ran."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.scheduler = Scheduler(0.0, self.times.append)
        self.clock = SimulatedClock(self.scheduler)
        self.said: list[tuple[str, float]] = []

    def sleeper(self, name: str, every: float, times: int) -> None:
        for _ in range(times):
            self.said.append((name, self.clock.wall()))
            self.clock.sleep(every)


def test_tasks_run_in_the_order_of_time_and_of_their_start() -> None:
    stage = Stage()
    stage.scheduler.start("b", lambda: stage.sleeper("b", 3, 3), 0)
    stage.scheduler.start("a", lambda: stage.sleeper("a", 2, 4), 0)
    stage.scheduler.advance(10)
    assert stage.said == [("b", 0), ("a", 0), ("a", 2), ("b", 3), ("a", 4), ("b", 6), ("a", 6)]
    assert stage.times == sorted(stage.times)
    assert stage.scheduler.now == 10
    assert stage.scheduler.next is None


def test_time_stops_at_the_target() -> None:
    stage = Stage()
    stage.scheduler.start("a", lambda: stage.sleeper("a", 4, 9), 5)
    assert stage.scheduler.next == 5
    stage.scheduler.advance(4)
    assert stage.said == []
    stage.scheduler.advance(13)
    assert stage.said == [("a", 5), ("a", 9), ("a", 13)]
    assert stage.scheduler.next == 17


def test_a_quiet_task_sleeps_until_time_stops_or_something_happens_to_it() -> None:
    stage, quiet = Stage(), [1000.0]
    stage.scheduler.start("a", lambda: stage.sleeper("a", 1, 99), 0, lambda: quiet[0])
    stage.scheduler.advance(100)
    stage.scheduler.advance(500)
    assert stage.said == [("a", 100), ("a", 500)]
    assert stage.scheduler.next == 1000
    quiet[0] = 0
    stage.scheduler.advance(502)
    assert stage.said[2:] == [("a", 501), ("a", 502)]


def test_an_unnoticed_task_continues_without_waking_others() -> None:
    stage = Stage()
    stage.scheduler.start("a", lambda: stage.sleeper("a", 1, 3), 0, lambda: 10.0, lambda: 1000.0)
    assert stage.scheduler.next == 1000
    stage.scheduler.advance(100)
    assert stage.said == [("a", 10), ("a", 11), ("a", 12)]


def test_a_task_that_is_ended_goes_no_further_and_no_handler_of_its_own_keeps_it() -> None:
    stage, left = Stage(), list[str]()

    def stubborn() -> None:
        try:
            while True:
                try:
                    stage.clock.sleep(1)
                except Exception:
                    left.append("caught")
        finally:
            left.append("unwound")

    running, never = stage.scheduler.start("a", stubborn, 0), stage.scheduler.start("b", stubborn, 50)
    stage.scheduler.advance(10)
    stage.scheduler.end([running, never])
    assert left == ["unwound"]
    stage.scheduler.advance(100)
    assert stage.scheduler.next is None


def test_a_task_that_hangs_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "HANGS_AFTER", 0.2)
    stage, stuck = Stage(), threading.Event()
    stage.scheduler.start("volume of i-1", stuck.wait, 3)
    with pytest.raises(LocalCloudError, match=r"volume of i-1 hangs: 0\.2 s without a sleep or an end"):
        stage.scheduler.advance(10)
    stuck.set()


def test_an_error_of_a_task_is_raised_by_advance() -> None:
    stage = Stage()

    def fails() -> None:
        stage.clock.sleep(2)
        raise KeyError("x")

    stage.scheduler.start("a", fails, 0)
    stage.scheduler.advance(1)
    with pytest.raises(KeyError):
        stage.scheduler.advance(5)
    assert stage.scheduler.now == 2
