from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.registry.item import Progress
from tests.node.bench import Bench
from tests.node.jobs import write_notice
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.machine.errors import LeaseLostError
from userdata.agent.machine.host import ProcessInfo, SystemHost
from userdata.agent.work.failures.inspection import GpuStatus
from userdata.agent.work.training import variables
from userdata.agent.work.training.checkpoint_files import newest_checkpoint


def test_a_command_that_ends_well_makes_the_job_done_and_takes_the_capacity_down(bench: Bench) -> None:
    assert bench.trainer("test $GPU_SPOT_JOB = resnet && test -d $GPU_SPOT_CHECKPOINTS").run() == "done"
    assert bench.job.marks == ["running", "done", "taken down"]
    assert bench.registry.left == [0]


def test_failures_are_bounded_and_the_pauses_grow(bench: Bench) -> None:
    bench.stand_still()
    assert bench.trainer("exit 3").run() == "failed"
    assert bench.job.marks == ["running", "failed", "taken down"]
    assert len(bench.starts) == 3
    assert bench.starts[2] - bench.starts[1] > bench.starts[1] - bench.starts[0] >= 5


def test_progress_resets_the_count(bench: Bench) -> None:
    script = (
        "n=$(ls $GPU_SPOT_CHECKPOINTS | wc -l); test $n -ge 5 && exit 0; "
        "sleep 0.02; touch $GPU_SPOT_CHECKPOINTS/$n; exit 1"
    )
    assert bench.trainer(script, restarts=1).run() == "done"
    assert bench.job.marks[-2:] == ["done", "taken down"]
    assert len(bench.starts) == 6


def test_a_late_answer_about_an_earlier_run_is_not_believed(bench: Bench) -> None:
    """The file system hangs at the end of the first run, and answers before the end of the second."""
    late: list[Callable[[], None]] = []

    def run(work: Any) -> None:
        if work.__self__._name == "done file" and len(bench.starts) == 1:
            late.append(work)
            return
        while late:
            late.pop()()
        work()

    bench.run_in_background = run
    script = 'test $GPU_SPOT_RESTARTS = 0 || touch "$GPU_SPOT_DONE"; exit 1'
    assert bench.trainer(script).run() == "done"
    assert len(bench.starts) == 2


@pytest.mark.parametrize(
    "writes",
    [
        "date > $GPU_SPOT_CHECKPOINTS/run-$n.log",
        "mkdir -p $GPU_SPOT_CHECKPOINTS/v$n; date > $GPU_SPOT_CHECKPOINTS/v$n/hparams.yaml",
        "date > $GPU_SPOT_CHECKPOINTS/events.out.tfevents.$n.host",
        "mkdir -p $GPU_SPOT_CHECKPOINTS/.hydra; date > $GPU_SPOT_CHECKPOINTS/.hydra/$n",
        """date > $GPU_SPOT_CHECKPOINTS/model-$n; echo '{"step": 3, "steps": 9}' > $GPU_SPOT_TELL""",
    ],
)
def test_a_crash_loop_that_gains_no_step_fails(bench: Bench, writes: str) -> None:
    bench.stand_still()
    script = f"n=$(wc -l < {bench.tmp}/starts || echo 0); echo x >> {bench.tmp}/starts; {writes}; exit 1"
    assert bench.trainer(script, restarts=2).run() == "failed"
    assert len(bench.starts) <= 4  # the first run may have gained the step


def test_a_script_that_caught_its_own_error_is_not_done(bench: Bench) -> None:
    bench.stand_still()
    source = Path(__file__).parents[2] / "packages" / "spot-training" / "src"
    (bench.tmp / "train.py").write_text(
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from spot_training import Spot\nspot = Spot(steps=100); spot.restore()\n"
        "try: raise RuntimeError('CUDA out of memory')\nexcept RuntimeError as error: print(error)\n"
    )
    assert bench.trainer(f"{sys.executable} train.py", restarts=1).run() == "failed"
    assert len(bench.starts) == 2


def test_checkpoints_on_an_instance_store_are_progress(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "SCRATCH_DIR", scratch := tmp_path / "scratch")
    script = (
        "d=$GPU_SPOT_LOCAL_CHECKPOINTS; mkdir -p $d; n=$(ls $d | wc -l); test $n -ge 3 && exit 0; "
        "touch $d/$n; exit 1"
    )
    monkeypatch.setattr(bench.host, "mounted", {scratch: "/dev/nvme1n1"}.get)
    assert bench.trainer(script, restarts=1).run() == "done"
    assert len(bench.starts) == 4
    monkeypatch.setattr(bench.host, "mounted", lambda path: None)
    assert "GPU_SPOT_LOCAL_CHECKPOINTS" not in bench.trainer("true")._environment(0)


@pytest.mark.parametrize("says_done", [False, True])
def test_sigterm_is_passed_on_and_exit_0_is_then_a_save_and_not_the_end(
    bench: Bench, says_done: bool
) -> None:
    done = "touch $GPU_SPOT_DONE;" if says_done else ""
    trainer = bench.trainer(
        f"trap '{done} touch $GPU_SPOT_CHECKPOINTS/saved; exit 0' TERM; touch up; while :; do sleep .02; done"
    )

    stopped: list[bool] = []

    def stop_when_up(seconds: float) -> None:
        if stopped:
            bench.processes[0].wait(TIMEOUT_SECONDS)  # simulated time stands still while a real process saves
        elif (bench.tmp / "up").exists():
            trainer.stop()
            stopped.append(True)

    bench.clock.on_sleep = stop_when_up
    assert trainer.run() == ("done" if says_done else "stopped")
    assert (bench.checkpoints / "saved").exists()
    assert bench.job.marks == (["running", "done", "taken down"] if says_done else ["running"])
    assert len(bench.starts) == 1


def test_a_training_that_does_not_end_is_killed_shortly_before_the_instance_is_taken(bench: Bench) -> None:
    trainer = bench.trainer("trap '' TERM; touch up; while :; do sleep .02; done")
    stopped_at: list[float] = []

    def stop_when_up(seconds: float) -> None:
        if not (bench.tmp / "up").exists():
            time.sleep(0.01)
        elif not stopped_at:
            stopped_at.append(write_notice(bench.tmp, bench.clock))
            trainer.stop()
        elif stopped_at[0] - bench.clock.wall() > 30:
            bench.clock.advance(5)
        elif stopped_at[0] - bench.clock.wall() <= 9.5:
            bench.processes[0].wait(TIMEOUT_SECONDS)  # simulated time stands still while a real process dies,
            time.sleep(0.2)  # and its children

    bench.clock.on_sleep = stop_when_up
    assert trainer.run() == "stopped"
    assert bench.processes[0].returncode == -signal.SIGKILL
    assert 9 <= stopped_at[0] - bench.clock.wall() <= 10


def test_a_process_that_outlives_sigkill_is_a_fault_of_the_host(bench: Bench) -> None:
    class Stuck:
        pid = 4_100_000

        def poll(self) -> None: ...

    class StuckHost(SystemHost):
        def processes(self) -> list[ProcessInfo]:
            return [ProcessInfo(Stuck.pid, 1, "python", 1, Stuck.pid, Stuck.pid, 0, handles_sigterm=False)]

        def signal(self, pid: int, number: int) -> None: ...

        signal_group = signal

    bench.host, bench.spawn = StuckHost(), lambda *_: Stuck()
    bench.looks.gpu_status = GpuStatus(missing=1)
    bench.clock.on_sleep = lambda _: bench.clock.advance(10)
    assert bench.trainer("true").run() == "host"
    assert len(bench.job.hosts) == 1


def test_the_age_of_checkpoints_is_that_of_the_newest_file_at_any_depth(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") == 0.0
    deep = tmp_path / "step-1" / "rank-0" / "shard"
    deep.parent.mkdir(parents=True)
    deep.touch()
    for age, path in enumerate((deep, deep.parent, deep.parent.parent), start=1):
        os.utime(path, (1000.0 * age, 1000.0 * age))
    assert newest_checkpoint(tmp_path) == 1000.0  # a folder's time changes when something is deleted from it
    (tmp_path / "latest").symlink_to(tmp_path / "step-0")  # rotated away
    os.utime(tmp_path / "latest", (5000.0, 5000.0), follow_symlinks=False)
    assert newest_checkpoint(tmp_path) == 5000.0
    (tmp_path / ".done").touch()
    (tmp_path / "step-1" / ".writing").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    os.utime(tmp_path / "loop", (1.0, 1.0), follow_symlinks=False)
    assert newest_checkpoint(tmp_path) == 5000.0


def test_a_checkpoint_that_is_rotated_away_meanwhile_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").touch()
        os.utime(tmp_path / name / "weights", (7.0, 7.0))
    scan = os.scandir

    def rotating(path: str) -> Any:
        if str(path).endswith("old"):
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", rotating)
    assert newest_checkpoint(tmp_path) == 7.0


def test_a_lost_lease_stops_the_training(bench: Bench) -> None:
    def renew() -> None:
        if bench.processes:
            raise LeaseLostError("taken over")

    trainer = bench.trainer("while :; do sleep 0.02; done", renew)
    with pytest.raises(LeaseLostError):
        trainer.run()
    assert bench.processes[0].poll() is not None
    assert bench.job.marks == ["running"]


def test_what_a_failed_run_has_left_does_not_end_the_one_that_is_tried_again(bench: Bench) -> None:
    bench.stand_still()
    assert bench.trainer("touch $GPU_SPOT_DONE").run() == "done"
    bench.job.again = 1
    assert bench.trainer("exit 3").run() == "failed"
    assert bench.job.marks[-2:] == ["failed", "taken down"]


def test_reported_steps_are_sent_with_the_heartbeat(bench: Bench) -> None:
    script = 'printf \'{"step": 3, "steps": 9}\' >$GPU_SPOT_TELL.new; mv $GPU_SPOT_TELL.new $GPU_SPOT_TELL'
    seen: list[Progress | None] = []
    pass_time = bench.clock.on_sleep

    def watch(seconds: float) -> None:
        pass_time(seconds)
        seen.append(bench.registry.progress)
        if any(seen):
            (bench.tmp / "stopped").touch()

    bench.clock.on_sleep = watch
    assert (
        bench.trainer(
            f"{script}; until [ -e {bench.tmp}/stopped ]; do sleep 0.05; done; touch $GPU_SPOT_DONE"
        ).run()
        == "done"
    )
    [progress] = {(p.step, p.steps, p.rate) for p in seen if p is not None}
    assert progress == (3, 9, 0.0)
