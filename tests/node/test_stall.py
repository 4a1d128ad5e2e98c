"""Stall detection: each kind of activity is sufficient; a stalled job is stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.work import worker_report_file
from userdata.agent.work.failures.faults import HostDiagnosis
from userdata.agent.work.failures.inspection import GpuStatus
from userdata.agent.work.failures.stall import ActivitySample, StallDetector

HOUR = 3600.0


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench
    bench.close()


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
    # It saved on each SIGTERM; that is no progress, or it would be restarted forever.
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


def test_a_job_that_hangs_on_a_broken_host_is_the_hosts_fault(bench: Bench) -> None:
    hasten(bench, 60.0)
    bench.looks.diagnosis = HostDiagnosis(gpus_expected=1, gpus_missing=1)
    assert bench.trainer("touch up; exec sleep 600", restarts=0, stalled_after_minutes=60).run() == "host"
    assert bench.job.marks == ["running"]


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
