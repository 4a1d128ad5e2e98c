"""A job that hangs: three signs of life, each enough by itself; and what happens to one that has none."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.waiting import PATIENCE
from userdata.agent.work import worker_report_file as tell
from userdata.agent.work.failures.faults import Examination
from userdata.agent.work.failures.inspection import Glance
from userdata.agent.work.failures.stall import Signs, Stillness

HOUR = 3600.0


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench
    bench.close()


@pytest.mark.parametrize("sign", ["checkpoint", "output", "gpu", "none"])
def test_each_sign_of_life_is_enough(sign: str) -> None:
    still = Stillness(HOUR, 0.0)
    for minute in range(1, 121):
        now = 60.0 * minute
        signs = Signs(
            checkpoint=now if sign == "checkpoint" else 5.0,
            output=minute if sign == "output" else 7,
            is_gpu_busy=sign == "gpu",
        )
        still.see(signs, now)
        assert still.is_hanging(now) is (sign == "none" and minute >= 61), (sign, minute)


def test_a_change_backwards_is_a_change() -> None:
    still = Stillness(HOUR, 0.0)
    still.see(Signs(9.0, 0, is_gpu_busy=False), 10.0)
    still.see(Signs(0.0, 0, is_gpu_busy=False), HOUR)  # the newest checkpoint was deleted
    assert not still.is_hanging(HOUR + 10.0)
    assert still.seconds(HOUR + 10.0) == 10.0


def test_with_nought_minutes_nothing_hangs() -> None:
    still = Stillness(0.0, 0.0)
    still.see(Signs(0.0, 0, is_gpu_busy=False), 1.0)
    assert not still.is_hanging(1e9)


def hasten(bench: Bench, seconds: float, up: str = "up") -> None:
    """Let simulated time stand still until the process is up, then pass quickly; it has real time, too."""

    def pass_time(slept: float) -> None:
        time.sleep(0.002)
        if (bench.tmp / up).exists():
            bench.clock.advance(seconds)
        elif bench.processes[-1].poll() is None:
            bench.clock.advance(-slept)

    bench.clock.on_sleep = pass_time


def test_a_job_that_hangs_is_told_to_save_and_counted_and_rings(bench: Bench) -> None:
    command = (
        "trap 'rm up; touch $GPU_SPOT_CHECKPOINTS/saved-$RANDOM; exit 0' TERM; touch up; sleep 600 & wait"
    )
    hasten(bench, 60.0)
    pass_time = bench.clock.on_sleep

    def save_in_real_time(seconds: float) -> None:
        if bench.rung.count("JobStalls") == len(bench.starts):
            bench.processes[-1].wait(PATIENCE)
        pass_time(seconds)

    bench.clock.on_sleep = save_in_real_time
    begun = bench.clock.monotonic()
    assert bench.trainer(command, restarts=1, stalled_after_minutes=60).run() == "failed"
    # It saved each time it was told; that it did is no progress, or it would hang for ever.
    assert len(list(bench.checkpoints.glob("saved-*"))) == len(bench.starts) == 2
    assert bench.rung == ["JobStalls", "JobStalls", "JobFailures"]
    assert "no sign of life for 60 minutes" in bench.job.reasons[-1]
    assert bench.clock.monotonic() - begun > 2 * HOUR


def test_one_that_does_not_hear_is_killed_after_two_minutes(bench: Bench) -> None:
    hasten(bench, 60.0)
    trainer = bench.trainer("trap '' TERM; touch up; exec sleep 600", restarts=0, stalled_after_minutes=60)
    assert trainer.run() == "failed"
    assert bench.processes[0].returncode == -signal.SIGKILL


def test_a_hanging_job_whose_work_is_done_is_done(bench: Bench) -> None:
    hasten(bench, 60.0)
    command = "touch up $GPU_SPOT_DONE; exec sleep 600"
    assert bench.trainer(command, restarts=0, stalled_after_minutes=60).run() == "done"


def test_a_job_that_hangs_on_a_broken_host_is_the_hosts_fault(bench: Bench) -> None:
    hasten(bench, 60.0)
    bench.looks.seen = Examination(gpus_expected=1, gpus_missing=1)
    assert bench.trainer("touch up; exec sleep 600", restarts=0, stalled_after_minutes=60).run() == "host"
    assert bench.job.marks == ["running"]


def test_a_gpu_that_is_gone_for_a_minute_ends_the_wait_for_it(bench: Bench) -> None:
    hasten(bench, 5.0)
    bench.looks.shown = Glance(missing=1)
    bench.looks.seen = Examination(gpus_expected=8, gpus_missing=1)
    begun = bench.clock.monotonic()
    assert bench.trainer("touch up; exec sleep 600").run() == "host"
    assert 50 < bench.clock.monotonic() - begun < 600
    assert bench.rung == ["HostFaults"]


@pytest.mark.parametrize("alive", ["output", "tell", "checkpoint", "gpu"])
def test_a_job_that_lives_is_left_alone(bench: Bench, alive: str) -> None:
    """For five hours, in which it shows one sign of life and no other."""
    tells = tell.tell_file(bench.tmp, 0)
    does = {
        "output": "echo .",
        "tell": f"echo $RANDOM >{tells}.new; mv {tells}.new {tells}",
        "checkpoint": "touch $GPU_SPOT_CHECKPOINTS/$RANDOM",
        "gpu": ":",
    }[alive]
    bench.looks.shown = Glance(is_busy=alive == "gpu")
    end = bench.clock.monotonic() + 5 * HOUR
    seen = [0.0, 0]

    def pass_time(_: float) -> None:
        if not (bench.tmp / "up").exists() or (bench.tmp / "stop").exists():
            time.sleep(0.002)
            return
        # A quarter of an hour passes for each sign that the process shows, not faster.
        if alive != "gpu":
            before = seen[1]
            limit = time.monotonic() + PATIENCE
            while seen[1] == before and time.monotonic() < limit:
                time.sleep(0.002)
                newest = max((p.stat().st_mtime_ns for p in bench.checkpoints.iterdir()), default=0)
                told = tells.stat().st_mtime_ns if tells.exists() else 0
                seen[1] = bench.output.pieces + newest + told
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
