"""Progress reports of a training script, as sent with the heartbeat."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from contracts.registry.item import Progress
from userdata.agent.work.training.progress import MIN_SECONDS, WINDOW_SECONDS, ProgressReader, ThroughputMeter
from userdata.agent.work.worker_report_file import create_worker_directory, report_path

STEPS = 100_000


def paced(*samples: tuple[float, int]) -> Progress:
    """What is known after these, each a time in seconds and a step."""
    pace = ThroughputMeter()
    return [pace.update(step, STEPS, at) for at, step in samples][-1]


def every(
    seconds: float, until: float, rate: float, start: float = 0.0, step: int = 0
) -> list[tuple[float, int]]:
    count = int((until - start) // seconds)
    return [(start + n * seconds, step + round(n * seconds * rate)) for n in range(count + 1)]


def test_a_steady_rate_is_measured_after_ten_minutes() -> None:
    early = paced(*every(10, MIN_SECONDS - 10, 2.0))
    assert (early.rate, early.best_rate) == (0.0, 0.0)
    known = paced(*every(10, MIN_SECONDS, 2.0))
    assert known == Progress(1200, STEPS, MIN_SECONDS, 0.0, 2.0, 2.0)


def test_a_jump_to_where_it_resumes_is_not_taken_for_speed() -> None:
    resumed = paced((0, 0), *every(10, 1210, 2.0, start=10, step=50_000))
    assert resumed.rate == pytest.approx(2.0)
    assert resumed.best_rate > 40


def test_minutes_of_compiling_do_not_make_the_job_slower_than_its_better_half() -> None:
    compiled = paced((0, 0), *every(10, 1200, 2.0, start=240))
    assert compiled.rate < 1.4
    assert compiled.best_rate == pytest.approx(2.0)


def test_a_step_back_restarts_the_measurement() -> None:
    back = paced(*every(10, 1200, 2.0), (1210, 900))
    assert (back.step, back.rate) == (900, 0.0)


def test_only_the_last_hour_counts() -> None:
    slower = paced(*every(30, 3600, 4.0), *every(30, 3600 + WINDOW_SECONDS, 1.0, start=3630, step=14_430))
    assert slower.rate == pytest.approx(1.0)
    assert slower.best_rate == pytest.approx(1.0)


def test_reports_half_an_hour_apart_give_a_rate() -> None:
    assert paced((0, 0), (1800, 100), (3600, 200), (5400, 300)).rate == pytest.approx(1 / 18)


def test_without_new_reports_time_and_rate_stay() -> None:
    pace = ThroughputMeter()
    for at, step in every(10, 1200, 2.0):
        last = pace.update(step, STEPS, at)
    assert pace.update(last.step, STEPS, last.reported_at) == last


def write(directory: Path, report: object, at: float) -> None:
    report_path(directory, 0).write_text(report if isinstance(report, str) else json.dumps(report))
    os.utime(report_path(directory, 0), (at, at))


def test_the_file_is_read_with_its_time_and_other_keys_are_left_alone(tmp_path: Path) -> None:
    create_worker_directory(tmp_path, 0)
    steps = ProgressReader(tmp_path)
    assert steps.read(1000.0) is None
    write(tmp_path, {"queueDepth": 17}, 990)
    assert steps.read(1000.0) is None
    write(tmp_path, {"step": 3, "steps": 9, "loss": 0.1}, 990)
    assert steps.read(1000.0) == Progress(3, 9, 990.0, 990.0)
    # However long ago: that it stands still is for the reader to see.
    assert steps.read(9000.0) == Progress(3, 9, 990.0, 990.0)


def test_a_report_from_the_future_is_dated_now(tmp_path: Path) -> None:
    create_worker_directory(tmp_path, 0)
    write(tmp_path, {"step": 3, "steps": 9}, 5000)
    report = ProgressReader(tmp_path).read(1000.0)
    assert report is not None
    assert report.reported_at == 1000.0


@pytest.mark.parametrize(
    "report",
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
def test_malformed_steps_are_logged_once_and_ignored(
    tmp_path: Path, report: object, caplog: pytest.LogCaptureFixture
) -> None:
    create_worker_directory(tmp_path, 0)
    write(tmp_path, report, 990)
    steps = ProgressReader(tmp_path)
    with caplog.at_level("WARNING"):
        assert [steps.read(1000.0) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
