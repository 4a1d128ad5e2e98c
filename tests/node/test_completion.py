"""Exit code 0 is the end of a job only if its own report does not say otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.node.bench import Bench
from userdata.agent.work.training.checkpoint_files import CheckpointFiles
from userdata.agent.work.training.completion import find_contradiction, with_pipefail
from userdata.agent.work.worker_report_file import StepsReport, create_worker_directory, read_job, report_path

ROOT = Path(__file__).parents[2]
TRAINS = """
import os, signal, sys
from spot_training import Spot
spot = Spot(steps=9)
spot.restore()
for step in range(9):
    spot.after(step + 1, lambda folder: (folder / "weights").write_text("x"))
    if step == 3 and sys.argv[1] == "raises":
        raise ValueError("loss is\\nnan")
    if step == 3 and sys.argv[1] == "is killed":
        spot.progress.report(4, 9, now=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 3 and sys.argv[1] == "stops early":
        break
if sys.argv[1] != "stops early":
    spot.finish(9)
"""
OF_NINE = StepsReport(3, 9, is_finished=False, error="")
DONE = StepsReport(9, 9, is_finished=True, error="")


@pytest.fixture
def bench(bench: Bench, tmp_path: Path) -> Bench:
    bench.variables = {
        "PYTHONPATH": str(ROOT / "packages" / "spot-training" / "src"),
        "PATH": os.environ["PATH"],
    }
    (tmp_path / "train.py").write_text(TRAINS)
    bench.stand_still()
    return bench


def piped(bench: Bench, how: str) -> str:
    """A script with a pipe, whose exit code is that of ``cat``."""
    (bench.tmp / "run.sh").write_text(f"{sys.executable} train.py '{how}' | cat\n")
    return "sh run.sh"


def test_a_crash_in_a_pipeline_is_a_failure(bench: Bench) -> None:
    assert bench.trainer(f"{sys.executable} -c 'import sys; sys.exit(3)' | tee log").run() == "failed"
    assert len(bench.starts) == 3
    assert "exit code 3" in bench.job.reasons[1]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raises", "exit code 0, but the training failed: ValueError: loss is nan"),
        ("is killed", "exit code 0 at step 4 of 9; a script that ends earlier on purpose reports"),
    ],
)
def test_what_the_training_reported_outweighs_exit_code_0(bench: Bench, how: str, reason: str) -> None:
    assert bench.trainer(piped(bench, how)).run() == "failed"
    assert len(bench.starts) == 3
    assert reason in bench.job.reasons[1]


def test_a_later_run_that_reports_nothing_is_a_failure(bench: Bench) -> None:
    train = f"{sys.executable} train.py raises"
    (bench.tmp / "run.sh").write_text(f"test -e again && exit 0; touch again; {train} | cat\n")
    assert bench.trainer("sh run.sh").run() == "failed"
    assert "exit code 0 without a progress report, which earlier runs wrote" in bench.job.reasons[1]


@pytest.mark.parametrize(
    ("command", "report", "has_reported", "reason"),
    [
        (["python", "train.py"], None, False, ""),
        (["python", "train.py"], None, True, "without a progress report"),
        (["python", "train.py"], DONE, True, ""),
        (["python", "train.py"], StepsReport(9, 9, is_finished=False, error=""), False, ""),
        (["python", "train.py"], StepsReport(3, 0, is_finished=False, error=""), False, ""),
        (["python", "train.py"], OF_NINE, False, "at step 3 of 9"),
        (["python", "train.py"], OF_NINE._replace(is_finished=True), False, ""),
        (["python", "train.py"], DONE._replace(error="OSError: gone"), False, "failed: OSError: gone"),
        (["sh", "-c", "python train.py | tee log"], None, False, "a pipe in sh"),
        (["/bin/sh", "-c", "python train.py | tee log"], OF_NINE._replace(steps=0), False, "a pipe in sh"),
        (["sh", "-c", "python train.py | tee log"], DONE, False, ""),
        # All steps, but the script did not reach its end: its export failed.
        (["sh", "-c", "python train.py | tee log"], DONE._replace(is_finished=False), False, "a pipe in sh"),
        (["sh", "-c", "test -e data || python prepare.py; python train.py >| log"], None, False, ""),
        (["bash", "-c", "python train.py | tee log"], None, False, ""),
    ],
)
def test_exit_code_0_counts_unless_something_contradicts(
    command: list[str], report: StepsReport | None, has_reported: bool, reason: str
) -> None:
    contradiction = find_contradiction(command, report, has_reported=has_reported)
    assert reason in contradiction
    assert bool(reason) == bool(contradiction)


def test_of_several_nodes_only_a_report_says_that_one_is_done() -> None:
    for report in (None, OF_NINE._replace(steps=0), OF_NINE._replace(step=9)):
        assert "without a report" in find_contradiction(
            ["python", "train.py"], report, has_reported=False, needs_report=True
        )
    assert not find_contradiction(["python", "train.py"], DONE, has_reported=False, needs_report=True)


def test_only_shells_that_know_it_get_pipefail() -> None:
    assert with_pipefail(["bash", "-c", "a | b"]) == ["bash", "-o", "pipefail", "-c", "a | b"]
    for command in (
        ["sh", "-c", "a | b"],
        ["bash", "run.sh"],
        ["bash", "-x", "-c", "a"],
        ["bash", "-c"],
        ["a"],
    ):
        assert with_pipefail(command) == command


def test_a_report_is_not_trusted(tmp_path: Path) -> None:
    create_worker_directory(tmp_path, 0)
    assert read_job(tmp_path) is None
    for text in ("", "[]", '{"queueDepth": 3}', "x" * 5000):
        report_path(tmp_path, 0).write_text(text)
        assert read_job(tmp_path) is None
    report_path(tmp_path, 0).write_text('{"step": "3", "steps": null, "finished": 1, "error": "a\\nb"}')
    assert read_job(tmp_path) == StepsReport(0, 0, is_finished=False, error="a b", has_step=False)


def test_a_checkpoint_dated_ahead_hides_no_progress(tmp_path: Path) -> None:
    """A clock was ahead until the time service corrected it."""
    files = CheckpointFiles(tmp_path)
    (tmp_path / "ahead").touch()
    os.utime(tmp_path / "ahead", (2e10, 2e10))
    assert files.scan() == 1
    (tmp_path / "next").touch()
    assert files.scan() == 2


def test_a_deleted_checkpoint_is_no_progress_and_a_replaced_one_is(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    assert files.scan() == 0
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    assert files.scan() == 1
    (tmp_path / "a").unlink()
    assert files.scan() == 1
    os.utime(tmp_path / "b", (5.0, 5.0))  # an earlier date, but another
    assert files.scan() == 2
    assert files.newest == 5.0
