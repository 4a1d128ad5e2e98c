"""Stall detection: each kind of activity is sufficient; a stalled job is stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from contracts.registry.item import Progress
from tests.node.bench import Bench
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.work import worker_report_file
from userdata.agent.work.failures.faults import HostDiagnosis
from userdata.agent.work.failures.inspection import GpuStatus
from userdata.agent.work.failures.stall import ActivitySample, StallDetector
from userdata.agent.work.training.progress import MIN_SECONDS, WINDOW_SECONDS, ProgressReader, ThroughputMeter
from userdata.agent.work.worker_report_file import create_worker_directory, report_path

HOUR = 3600.0


@pytest.mark.parametrize("sign", ["checkpoint", "output", "gpu", "none"])
def test_each_sign_of_life_is_enough(sign: str) -> None:
    still = StallDetector(HOUR, 0.0)
    for minute in range(1, 121):
        now = 60.0 * minute
        signs = ActivitySample(
            checkpoint=now if sign == "checkpoint" else 5.0,
            output=minute if sign == "output" else 7,
            is_gpu_busy=sign == "gpu",
        )
        still.update(signs, now)
        assert still.is_stalled(now) is (sign == "none" and minute >= 61), (sign, minute)


def test_a_change_backwards_is_a_change() -> None:
    still = StallDetector(HOUR, 0.0)
    still.update(ActivitySample(9.0, 0, is_gpu_busy=False), 10.0)
    still.update(ActivitySample(0.0, 0, is_gpu_busy=False), HOUR)  # the newest checkpoint was deleted
    assert not still.is_stalled(HOUR + 10.0)
    assert still.stalled_seconds(HOUR + 10.0) == 10.0


def test_with_nought_minutes_nothing_hangs() -> None:
    still = StallDetector(0.0, 0.0)
    still.update(ActivitySample(0.0, 0, is_gpu_busy=False), 1.0)
    assert not still.is_stalled(1e9)


def hasten(bench: Bench, seconds: float, up: str = "up") -> None:
    """Let simulated time stand still until the process is up, then pass quickly; it has real time, too."""

    def pass_time(slept: float) -> None:
        time.sleep(0.002)
        if (bench.tmp / up).exists():
            bench.clock.advance(seconds)
        elif bench.processes[-1].poll() is None:
            bench.clock.advance(-slept)

    bench.clock.on_sleep = pass_time


def test_a_stalled_job_gets_sigterm_and_is_counted_in_the_metric(bench: Bench) -> None:
    command = (
        "trap 'rm up; touch $GPU_SPOT_CHECKPOINTS/saved-$RANDOM; exit 0' TERM; touch up; sleep 600 & wait"
    )
    hasten(bench, 60.0)
    pass_time = bench.clock.on_sleep

    def save_in_real_time(seconds: float) -> None:
        if bench.rung.count("JobStalls") == len(bench.starts):
            bench.processes[-1].wait(TIMEOUT_SECONDS)
        pass_time(seconds)

    bench.clock.on_sleep = save_in_real_time
    started_at = bench.clock.monotonic()
    assert bench.trainer(command, restarts=1, stalled_after_minutes=60).run() == "failed"
    # It saved on each SIGTERM; that is not progress, or it would be restarted forever.
    assert len(list(bench.checkpoints.glob("saved-*"))) == len(bench.starts) == 2
    assert bench.rung == ["JobStalls", "JobStalls", "JobFailures"]
    assert "no activity for 60 minutes" in bench.job.reasons[-1]
    assert bench.clock.monotonic() - started_at > 2 * HOUR


def test_a_stalled_job_without_a_handler_is_killed_after_two_minutes(bench: Bench) -> None:
    hasten(bench, 60.0)
    trainer = bench.trainer("trap '' TERM; touch up; exec sleep 600", restarts=0, stalled_after_minutes=60)
    assert trainer.run() == "failed"
    assert bench.processes[0].returncode == -signal.SIGKILL


def test_a_stalled_job_that_reported_done_is_done(bench: Bench) -> None:
    hasten(bench, 60.0)
    command = "touch up $GPU_SPOT_DONE; exec sleep 600"
    assert bench.trainer(command, restarts=0, stalled_after_minutes=60).run() == "done"


def test_a_gpu_that_is_gone_for_a_minute_ends_the_wait_for_it(bench: Bench) -> None:
    hasten(bench, 5.0)
    bench.looks.gpu_status = GpuStatus(missing=1)
    bench.looks.diagnosis = HostDiagnosis(gpus_expected=8, gpus_missing=1)
    started_at = bench.clock.monotonic()
    assert bench.trainer("touch up; exec sleep 600").run() == "host"
    assert 50 < bench.clock.monotonic() - started_at < 600
    assert bench.rung == ["HostFaults"]


@pytest.mark.parametrize("alive", ["output", "tell", "checkpoint", "gpu"])
def test_a_job_that_lives_is_left_alone(bench: Bench, alive: str) -> None:
    """For five hours, in which it shows one sign of life and no other."""
    report = worker_report_file.report_path(bench.tmp, 0)
    does = {
        "output": "echo .",
        "tell": f"echo $RANDOM >{report}.new; mv {report}.new {report}",
        "checkpoint": "touch $GPU_SPOT_CHECKPOINTS/$RANDOM",
        "gpu": ":",
    }[alive]
    bench.looks.gpu_status = GpuStatus(is_busy=alive == "gpu")
    end = bench.clock.monotonic() + 5 * HOUR
    seen = [0.0, 0]

    def pass_time(_: float) -> None:
        if not (bench.tmp / "up").exists() or (bench.tmp / "stop").exists():
            time.sleep(0.002)
            return
        # A quarter of an hour passes for each sign that the process shows, not faster.
        if alive != "gpu":
            before = seen[1]
            limit = time.monotonic() + TIMEOUT_SECONDS
            while seen[1] == before and time.monotonic() < limit:
                time.sleep(0.002)
                newest = max((p.stat().st_mtime_ns for p in bench.checkpoints.iterdir()), default=0)
                changed_at = report.stat().st_mtime_ns if report.exists() else 0
                seen[1] = bench.output.pieces + newest + changed_at
        bench.clock.advance(900.0)
        if bench.clock.monotonic() > end:
            (bench.tmp / "stop").touch()

    bench.clock.on_sleep = pass_time
    command = f"touch up; while test ! -e stop; do {does}; sleep .01; done"
    assert bench.trainer(command, restarts=0, stalled_after_minutes=60).run() == "done"
    assert bench.rung == []


def test_what_the_job_writes_reaches_the_log_to_the_last_line(bench: Bench) -> None:
    bench.trainer("for n in 1 2 3; do echo line $n; echo error $n >&2; done").run()
    assert (bench.tmp / "log").read_text() == "".join(f"line {n}\nerror {n}\n" for n in (1, 2, 3))


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
