"""What a training script tells of its steps, as the heartbeat passes it on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from contracts.registry.item import Progress
from userdata.agent.work.training.progress import LEAST_SECONDS, WINDOW_SECONDS, Pace, Steps
from userdata.agent.work.worker_report_file import make_place, tell_file

STEPS = 100_000


def paced(*told: tuple[float, int]) -> Progress:
    """What is known after these, each a time in seconds and a step."""
    pace = Pace()
    return [pace.see(step, STEPS, at) for at, step in told][-1]


def every(
    seconds: float, until: float, rate: float, start: float = 0.0, step: int = 0
) -> list[tuple[float, int]]:
    count = int((until - start) // seconds)
    return [(start + n * seconds, step + round(n * seconds * rate)) for n in range(count + 1)]


def test_a_steady_rate_is_measured_after_ten_minutes() -> None:
    early = paced(*every(10, LEAST_SECONDS - 10, 2.0))
    assert (early.rate, early.best) == (0.0, 0.0)
    known = paced(*every(10, LEAST_SECONDS, 2.0))
    assert known == Progress(1200, STEPS, LEAST_SECONDS, 0.0, 2.0, 2.0)


def test_a_jump_to_where_it_resumes_is_not_taken_for_speed() -> None:
    resumed = paced((0, 0), *every(10, 1210, 2.0, start=10, step=50_000))
    assert resumed.rate == pytest.approx(2.0)
    assert resumed.best > 40


def test_minutes_of_compiling_do_not_make_the_job_slower_than_its_better_half() -> None:
    compiled = paced((0, 0), *every(10, 1200, 2.0, start=240))
    assert compiled.rate < 1.4
    assert compiled.best == pytest.approx(2.0)


def test_a_step_back_begins_the_measuring_anew() -> None:
    back = paced(*every(10, 1200, 2.0), (1210, 900))
    assert (back.step, back.rate) == (900, 0.0)


def test_only_the_last_hour_counts() -> None:
    slower = paced(*every(30, 3600, 4.0), *every(30, 3600 + WINDOW_SECONDS, 1.0, start=3630, step=14_430))
    assert slower.rate == pytest.approx(1.0)
    assert slower.best == pytest.approx(1.0)


def test_epochs_told_half_an_hour_apart_are_a_rate_too() -> None:
    assert paced((0, 0), (1800, 100), (3600, 200), (5400, 300)).rate == pytest.approx(1 / 18)


def test_who_tells_no_more_keeps_its_time_and_its_rate() -> None:
    pace = Pace()
    for at, step in every(10, 1200, 2.0):
        last = pace.see(step, STEPS, at)
    assert pace.see(last.step, STEPS, last.at) == last


def write(directory: Path, told: object, at: float) -> None:
    tell_file(directory, 0).write_text(told if isinstance(told, str) else json.dumps(told))
    os.utime(tell_file(directory, 0), (at, at))


def test_the_file_is_read_with_its_time_and_other_keys_are_left_alone(tmp_path: Path) -> None:
    make_place(tmp_path, 0)
    steps = Steps(tmp_path)
    assert steps.progress(1000.0) is None
    write(tmp_path, {"queueDepth": 17}, 990)
    assert steps.progress(1000.0) is None
    write(tmp_path, {"step": 3, "steps": 9, "loss": 0.1}, 990)
    assert steps.progress(1000.0) == Progress(3, 9, 990.0, 990.0)
    # However long ago: that it stands still is for the reader to see.
    assert steps.progress(9000.0) == Progress(3, 9, 990.0, 990.0)


def test_a_clock_that_is_ahead_tells_nothing_from_the_future(tmp_path: Path) -> None:
    make_place(tmp_path, 0)
    write(tmp_path, {"step": 3, "steps": 9}, 5000)
    told = Steps(tmp_path).progress(1000.0)
    assert told is not None
    assert told.at == 1000.0


@pytest.mark.parametrize(
    "told",
    [
        {"step": 10, "steps": 9},
        {"step": -1, "steps": 9},
        {"step": 1},
        {"step": 1, "steps": 0},
        {"step": True, "steps": 9},
        {"step": 1.5, "steps": 9},
        {"step": 1, "steps": 2**53 + 1},
        "[1, 2]",
        "{",
        "[" * 3000,
    ],
    ids=str,
)
def test_absurd_steps_are_complained_about_once_and_count_as_not_told(
    tmp_path: Path, told: object, caplog: pytest.LogCaptureFixture
) -> None:
    make_place(tmp_path, 0)
    write(tmp_path, told, 990)
    steps = Steps(tmp_path)
    with caplog.at_level("WARNING"):
        assert [steps.progress(1000.0) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
