"""The command spot-training, in its own process: a training that is killed, crashes, hears a notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spot_training import Checkpointer
from spot_training.command.supervisor import SAVED_CODE, Supervisor
from spot_training.identity import TrainingRun
from spot_training.notice import Notice
from support.disk import content, let_go
from support.waiting import wait_until

COMMAND = [sys.executable, "-m", "spot_training.command"]
TRAIN = """
import os, signal, sys, time
from pathlib import Path
from spot_training import Interval, Spot
spot = Spot(steps=20)
saved = spot.restore()
first = saved.step if saved else 0
print("from step", first, flush=True)
for step in range(first + 1, 21):
    if "crashes" in sys.argv:
        raise ValueError("bad loss")
    spot.save(step, lambda folder: (folder / "weights").write_text(str(step)))
    with open("steps", "a") as file:
        file.write(f"{step}\\n")
    how = sys.argv[1:]
    if "dies" in how and step % 5 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if "lasts" in how:
        time.sleep(0.1)
    if spot.should_stop():
        print("saved at", step, flush=True)
        sys.exit(0)
spot.finish(20)
"""

QUICK = """
import sys
from spot_training.command import cli, supervisor
supervisor.Supervisor.__init__.__kwdefaults__["delay_seconds"] = 0.05  # seconds for users
sys.exit(cli.main())
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "quick.py").write_text(QUICK)
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SPOT_")}
        process = subprocess.Popen(
            [sys.executable, "quick.py", *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()


def steps(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "steps").read_text().split()]


def test_a_killed_training_resumes_and_ends(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    done = start("run", "--", sys.executable, "train.py", "dies")
    text, _ = done.communicate(timeout=60)
    assert done.returncode == 0, text
    assert steps(tmp_path) == list(range(1, 21))
    assert text.count("ended by signal 9; starting again") == 4


def test_a_crash_in_a_pipe_is_restarted_and_then_given_up(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    command = ["sh", "-c", f"{sys.executable} train.py crashes | cat"]
    done = start("run", "--restarts", "2", "--location", "elsewhere", "--", *command)
    text, _ = done.communicate(timeout=60)
    assert done.returncode == 1, text
    # The two writers' own lines can be mixed: an unbuffered print writes in parts.
    failed = "exit code 0, but the training failed: ValueError: bad loss; "
    assert text.count(f"{failed}starting again") == 2
    assert text.count(f"{failed}failed 3 times") == 1
    assert (tmp_path / "elsewhere").is_dir()


def test_another_run_is_not_started_again(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    first = start("run", "--", sys.executable, "train.py")
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 0, text
    other = start("run", "--", sys.executable, "train.py", "another")
    text, _ = other.communicate(timeout=60)
    assert other.returncode == 1
    assert "starting again" not in text
    assert "not started again: " in text.splitlines()[-1]
    assert "arguments [] there, [another] here" in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("is_shell", "number"),
    [
        (False, signal.SIGTERM),
        (True, signal.SIGINT),
        pytest.param(False, signal.SIGINT, marks=pytest.mark.soak),
        pytest.param(True, signal.SIGTERM, marks=pytest.mark.soak),
    ],
)
def test_at_a_notice_it_saves_and_says_that_it_is_to_be_started_again(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], number: int, is_shell: bool
) -> None:
    train = [sys.executable, "train.py", "lasts"]
    command = ["sh", "-c", f"true; {' '.join(train)} 2>&1 | tee train.log"] if is_shell else train
    process = start("run", "--", *command)
    wait_until(lambda: (tmp_path / "steps").exists() and len(steps(tmp_path)) > 2)
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == SAVED_CODE, text
    assert "saved at" in (text if not is_shell else (tmp_path / "train.log").read_text())
    again = start("run", "--", *train)  # the same run: another argument would be another one
    text, _ = again.communicate(timeout=60)
    assert again.returncode == 0, text
    assert steps(tmp_path) == list(range(1, 21))


def test_a_training_that_does_not_end_is_killed_in_time(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    ignores = "trap '' TERM; touch up; while :; do sleep 0.1; done"
    process = start("run", "--grace", "3", "--", "sh", "-c", ignores)
    wait_until((tmp_path / "up").exists)
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert time.monotonic() - started < 20
    assert "time is up" in text


FOLDS = """
import os, signal
from spot_training import Spot
for name in ("fold-1", "fold-2"):
    spot = Spot(name=name, steps=4)
    saved = spot.restore()
    for step in range(saved.step + 1 if saved else 1, 5):
        spot.save(step, lambda folder: (folder / "weights").write_text(str(step)))
        os.kill(os.getpid(), signal.SIGKILL)
    spot.finish(4)
"""


def test_checkpoints_of_trainings_with_names_count_as_progress(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    (tmp_path / "folds.py").write_text(FOLDS)
    done = start("run", "--restarts", "1", "--", sys.executable, "folds.py")
    text, _ = done.communicate(timeout=120)
    assert done.returncode == 0, text
    assert text.count("ended by signal 9; starting again in 0 s (1 of 1)") == 8


def test_a_training_gets_the_location_of_the_command_wherever_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_SPOT_CHECKPOINTS", "other")
    command = ["sh", "-c", "mkdir work && cd work && echo $GPU_SPOT_CHECKPOINTS > ../given"]
    notice = Notice()
    assert Supervisor(command, "there", notice, restarts=0, grace_seconds=1.0).run() == 0
    notice.close()
    assert (tmp_path / "given").read_text() == f"{tmp_path}/there\n"


def test_checkpoints_are_listed_verified_and_exported(tmp_path: Path) -> None:
    run_of_training = TrainingRun(script="train.py", arguments=["--lr", "0.1"])
    one = Checkpointer(tmp_path / "c", run=run_of_training)
    for step in (10, 20):
        one.save(step, content(f"at {step}"))
    let_go(one)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
        )

    listed = run("ls", tmp_path / "c")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "step-000000000020",
        "step-000000000010",
    ]
    assert all(line.endswith(f"whole  run {run_of_training.name}") for line in listed.stdout.splitlines())
    assert run("verify", tmp_path / "c").returncode == 0
    newest = tmp_path / "c" / "step-000000000020" / "rank-00000"
    (newest / "state").write_text("other")
    damaged = run("verify", tmp_path / "c")
    assert damaged.returncode == 1
    assert "rank-00000/state has a wrong checksum" in damaged.stdout
    exported = run("export", tmp_path / "c", tmp_path / "model")
    assert exported.stdout.startswith("step 10 exported to ")
    assert (tmp_path / "model" / "rank-00000" / "state").read_text() == "at 10"
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["step"] == 10
    for arguments in (("export", tmp_path / "c", tmp_path / "model"), ("ls", tmp_path / "none"), ("run",)):
        refused = run(*arguments)
        assert refused.returncode == 1
        assert len(refused.stderr.splitlines()) == 1
    refused = run("export", tmp_path / "c", tmp_path / "x", "--step", 20)
    assert "step-000000000020: rank-00000/state has a wrong checksum" in refused.stderr


REHEARSED = """
import os, random, sys
from pathlib import Path
from spot_training import Spot
random.seed(1)
spot = Spot(steps=30)
saved = spot.restore()
total = float((saved.part() / "total").read_text()) if saved else 0.0
names = sorted(os.listdir("data")) if "sorted" in sys.argv else os.listdir("data")
if "raises" in sys.argv:
    raise SystemExit("no module named x")
start = saved.step if saved and "again" not in sys.argv else 0
for step in range(start, 30):
    total += random.random() + len(names[step % 3]) * (step % 3 + 1)
    spot.after(step + 1, lambda folder: (folder / "total").write_text(repr(total)))
    if spot.should_stop():
        sys.exit(0)
spot.finish(30)
"""


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["sorted"], 0, "notice after step 4: same\nSIGKILL after step 4: same\nnotice after step 4, then a"),
        ([], 1, "notice after step 4: same"),
        (["sorted", "again"], 1, "total"),
        (["raises"], 1, "uninterrupted: exit code 1: the script ended at step 0 of 30"),
    ],
)
def test_a_rehearsal_finds_what_a_restart_changes(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    (tmp_path / "train.py").write_text(REHEARSED)
    (tmp_path / "data").mkdir()
    for name in ("a", "bb", "ccc"):
        (tmp_path / "data" / name).touch()
    command = [*COMMAND, "rehearse", "--steps", "8", "--", sys.executable, "train.py", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SPOT_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert text in done.stdout
    assert ("other orders of directories and sets: same" in done.stdout) == (code == 0)
    assert not (tmp_path / "checkpoints").exists()


def test_a_start_that_takes_too_long_leaves_no_process(tmp_path: Path) -> None:
    command = [*COMMAND, "rehearse", "--seconds", "1", "--", "sh", "-c", "sleep 77 & echo $! > pid; wait"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert "uninterrupted: not at its end after 1 s" in done.stdout
    left = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    assert not (left.exists() and left.read_bytes())
