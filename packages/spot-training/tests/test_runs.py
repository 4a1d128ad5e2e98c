"""A checkpoint belongs to a run: none is destroyed or taken by what is not its run, version or process."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spot_training import Checkpointer, InUseError, Progress, RestoreError, Spot
from spot_training.errors import OtherRunError
from spot_training.identity import TrainingRun
from spot_training.storage.manifest import FILE
from support.disk import Clock, FakeNotice, content, let_go
from support.waiting import wait_until

FIRST = TrainingRun(script="train.py", arguments=["--lr", "0.1"])
SECOND = TrainingRun(script="train.py", arguments=["--lr", "0.01"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture(autouse=True)
def hook() -> Iterator[None]:
    before = sys.excepthook
    yield
    sys.excepthook = before


def train(folder: Path, run: TrainingRun | None, *steps: int, **options: Any) -> int | None:
    checkpointer = Checkpointer(folder, run=run, retry_policy=Clock().retry_policy(), **options)
    saved = checkpointer.restore()
    for step in steps:
        checkpointer.save(step, content(f"at {step}"))
    checkpointer.close()
    return saved.step if saved else None


def committed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("step-"))


def rewrite(checkpoint: Path, **changes: Any) -> None:
    """Change a manifest as another version would write it, with a valid checksum."""
    body = json.loads((checkpoint / FILE).read_text())
    body.pop("checksum")
    body |= changes
    checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (checkpoint / FILE).write_text(json.dumps({**body, "checksum": checksum}, sort_keys=True))


def test_a_run_is_continued_and_said_on_standard_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(folder, FIRST, 10) is None
    assert train(folder, FIRST) == 10
    [line] = capsys.readouterr().err.splitlines()
    assert line == (f"spot_training: {folder}: goes on at step 10 of run {FIRST.id} (train.py --lr 0.1)")


def test_another_runs_checkpoint_is_refused_by_both_names_and_stays(folder: Path) -> None:
    train(folder, FIRST, 10, 20)
    with pytest.raises(OtherRunError) as caught:
        train(folder, SECOND)
    text = str(caught.value)
    for part in (
        f"step-000000000020 is of run {FIRST.id} (train.py --lr 0.1), ",
        f"this is {SECOND.id} (train.py --lr 0.01)",
        "arguments [--lr 0.1] there, [--lr 0.01] here",
        f"SPOT_TRAINING_TAKE_OVER={FIRST.id}",
        f"SPOT_TRAINING_START_OVER={FIRST.id}",
    ):
        assert part in text
    assert "\n" not in text
    assert committed(folder) == ["step-000000000010", "step-000000000020"]
    assert train(folder, FIRST) == 20  # nothing has changed, and the directory is free


def test_a_run_is_taken_over_on_purpose(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(folder, FIRST, 10)
    monkeypatch.setenv("SPOT_TRAINING_TAKE_OVER", FIRST.id)
    assert train(folder, SECOND, 20) == 10
    assert f"of run {FIRST.id} (train.py --lr 0.1), taken over by {SECOND.id}" in capsys.readouterr().err
    assert train(folder, SECOND) == 20  # the setting may stay
    monkeypatch.delenv("SPOT_TRAINING_TAKE_OVER")
    assert train(folder, SECOND) == 20
    with pytest.raises(OtherRunError):
        train(folder, FIRST)


def test_starting_over_excludes_the_other_run_for_good(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(folder, FIRST, 10, 20)
    monkeypatch.setenv("SPOT_TRAINING_START_OVER", FIRST.id)
    assert train(folder, SECOND, 10, 20, 30, 40, 50) is None
    assert train(folder, SECOND) == 50  # only once, though the setting stays
    excluded = sorted(path.name for path in folder.iterdir() if path.name.startswith(".run-"))
    assert excluded == [f".run-{FIRST.id}-step-000000000010", f".run-{FIRST.id}-step-000000000020"]
    assert (folder / excluded[1] / "rank-00000" / "state").read_text() == "at 20"


@pytest.mark.parametrize(
    ("stored", "differs"),
    [
        (TrainingRun(), False),  # unknown
        (TrainingRun(script="train.py", arguments=["--lr", "0.1"], values={"optimizer": {"lr": 0.1}}), False),
        (TrainingRun(script="train.py", values={"optimizer": {"lr": 0.2}}), True),
        (TrainingRun(script="other.py"), True),
        (TrainingRun(job="images"), True),
        (TrainingRun(job="texts", revision="1" * 40), True),
        (TrainingRun(job="texts", revision="2" * 40), False),
        (TrainingRun(settings={"data": {"size": 4}}), True),
    ],
)
def test_runs_differ_in_what_both_know(stored: TrainingRun, differs: bool) -> None:
    run = TrainingRun(
        "texts", "2" * 40, "train.py", ["--lr", "0.1"], {"data": {"size": 5}}, {"optimizer": {"lr": 0.1}}
    )
    bare = TrainingRun(script="train.py", arguments=["--lr", "0.1"], values={"optimizer": {"lr": 0.1}})
    this = run if stored.job or stored.settings else bare
    assert bool(this.differences(stored.document())) is differs


def test_values_are_not_compared_with_another_number_of_ranks_or_declared_settings() -> None:
    before = TrainingRun(settings={"a": 1}, values={"optimizer": [{"lr": 0.1}]})
    now = TrainingRun(settings={"a": 1}, values={"optimizer": [{"lr": 0.2}]})
    assert now.differences(before.document()) == []
    scaled = TrainingRun(values={"optimizer": [{"lr": 0.2}]})
    assert scaled.differences(before.document(), same_ranks=False) == []
    assert scaled.differences(before.document()) == ["optimizer.0.lr 0.1 there, 0.2 here"]


def test_the_run_of_a_process() -> None:
    environment = {"GPU_SPOT_JOB": "images", "GPU_SPOT_DONE": f"/data/.done-{'a' * 40}-2"}
    command = ["/code/train.py", "--local_rank=1", "--epochs", "4", "--local-rank", "1"]
    run = TrainingRun.of_process(values={"lr": 0.1}, environment=environment, command=command)
    assert (run.job, run.revision, run.script, run.arguments) == (
        "images", "a" * 40, "train.py", ["--epochs", "4"]
    )  # fmt: skip
    assert "job images" in run.name
    declared = TrainingRun.of_process({"lr": 0.1}, environment={}, command=command)
    assert (declared.arguments, declared.settings) == (None, {"lr": 0.1})
    notebook = TrainingRun.of_process(environment={}, command=["/x/ipykernel_launcher.py", "-f", "1.json"])
    assert (notebook.script, notebook.arguments) == (None, None)


def test_a_newer_format_ends_the_run_and_stays(folder: Path) -> None:
    train(folder, FIRST, 10, 20, 30)
    rewrite(folder / "step-000000000030", version=2)
    for _ in range(2):  # also the second start
        with pytest.raises(RestoreError, match=r"000030: manifest.json has format 2, this version reads 1"):
            train(folder, FIRST)
    assert committed(folder)[-1] == "step-000000000030"
    assert not list(folder.glob(".bad-*"))


def test_keys_of_a_newer_version_are_ignored(folder: Path) -> None:
    train(folder, FIRST, 10)
    document = {**FIRST.document(), "colour": "green"}
    rewrite(folder / "step-000000000010", run=document, compression="none")
    assert train(folder, FIRST) == 10


def test_damaged_checkpoints_are_never_deleted_and_never_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(folder, FIRST, 10)
    (folder / "step-000000000010" / "rank-00000" / "state").write_text("?")
    for _ in range(2):  # the second start does not begin at step 0 either
        with pytest.raises(RestoreError, match="SPOT_TRAINING_START_OVER=damaged"):
            train(folder, FIRST)
    monkeypatch.setenv("SPOT_TRAINING_START_OVER", "damaged")
    assert train(folder, FIRST, 10, 20, 30, 40, 50) is None
    assert (folder / ".bad-step-000000000010" / "rank-00000" / "state").read_text() == "?"


def test_a_step_is_replaced_on_request_only(folder: Path) -> None:
    checkpointer = Checkpointer(folder)
    checkpointer.save(10, content("a"))
    checkpointer.save(10, content("b"))
    assert (folder / "step-000000000010" / "rank-00000" / "state").read_text() == "a"
    checkpointer.save(10, content("c"), replace=True)
    assert (folder / "step-000000000010" / "rank-00000" / "state").read_text() == "c"
    let_go(checkpointer)


def test_trainings_with_names_have_a_directory_each(folder: Path) -> None:
    for name in ("fold-0", "fold-1"):
        train(folder, FIRST, 10, name=name)
    assert sorted(path.name for path in folder.iterdir()) == ["fold-0", "fold-1"]
    for name in ("", ".a", "a/b"):
        with pytest.raises(Exception, match="must be a directory's name"):
            Checkpointer(folder, name=name)


def test_a_second_training_of_this_process_is_refused_at_once(folder: Path) -> None:
    first, clock = Checkpointer(folder), Clock()
    first.restore()
    before = clock()
    with pytest.raises(InUseError, match=r"another training of this process; .*name='fold-1'"):
        Checkpointer(folder, retry_policy=clock.retry_policy()).restore()
    assert clock() == before
    first.close()
    assert train(folder, None) is None


def test_what_has_ended_in_this_process_is_not_taken_for_the_next_training(folder: Path) -> None:
    def spot() -> Spot:
        return Spot(folder, notice=FakeNotice(), progress=Progress(environment={}), run=FIRST)

    first = spot()
    first.restore()
    first.save(10, content("x"))
    first.finish(10)
    with pytest.raises(InUseError, match=r"a training that ended in this process; .*name='fold-1'"):
        spot().restore()
    first.close()  # on purpose
    again = spot()
    saved = again.restore()
    assert saved is not None
    assert saved.step == 10
    again.close()


OWNER = """
import os, sys, time
from spot_training import Checkpointer
checkpointer = Checkpointer(sys.argv[1])
checkpointer.restore()
child = os.fork()
if not child:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


def test_a_dead_owners_worker_does_not_hold_the_lock(folder: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    worker = int(owner.stdout.readline())
    try:
        wait_until(lambda: not any(".lock" in path for path in open_files(worker)))
        owner.kill()
        owner.wait()
        clock = Clock()
        before = clock()
        checkpointer = Checkpointer(folder, retry_policy=clock.retry_policy())
        checkpointer.restore()
        assert clock() - before < 1
        checkpointer.close()
    finally:
        os.kill(worker, signal.SIGKILL)
        owner.kill()
        owner.communicate()


def open_files(pid: int) -> list[str]:
    links = Path(f"/proc/{pid}/fd").iterdir()
    return [str(link.readlink()) for link in links if link.is_symlink()]


SCRIPT = """
import sys
from spot_training import Spot
spot = Spot(sys.argv[1])
saved = spot.restore()
spot.save(10, lambda folder: (folder / "state").write_text("x"))
"""


def test_a_refusal_is_one_line_without_a_traceback(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tmp_path / "train.py"), str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    assert start().returncode == 0
    again = start()
    assert (again.returncode, again.stderr.count("goes on at step 10 of run")) == (0, 1)
    other = start("--lr", "0.01")
    assert other.returncode == 1
    [line] = other.stderr.splitlines()
    assert line.startswith("spot_training.errors.OtherRunError: ")


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("--lr 0.1", "--lr 0.1 --resume", True),
        ("--lr 0.1 a.yaml", "--lr 0.1 --resume a.yaml", True),
        ("--lr 0.1", "--resume runs/last --lr 0.1", True),
        ("--run-name a-0701 --lr 0.1", "--run-name a-0702 --lr 0.1", True),
        ("--run_name=a --wandb-id 3f", "--run_name=b --wandb-id 4e", True),
        ("hydra.run.dir=out/1 lr=0.1", "hydra.run.dir=out/2 lr=0.1", True),
        ("--lr 0.1", "--lr 0.2 --resume", False),
        ("--date 2026-01-01", "--date 2026-01-02", False),
        ("--model-name a", "--model-name b", False),
        ("lr=0.1", "lr=0.2", False),
        ("a.yaml", "--resume b.yaml a.yaml", True),
        ("a.yaml", "--resume x b.yaml", False),
    ],
)
def test_arguments_that_change_at_each_start_are_no_other_run(first: str, second: str, is_same: bool) -> None:
    one, two = (
        TrainingRun.of_process(environment={}, command=["train.py", *text.split()])
        for text in (first, second)
    )
    assert (two.differences(one.document()) == []) == is_same
    with_command = [
        TrainingRun.of_process(environment={"GPU_SPOT_COMMAND": digest}, command=["train.py", *text.split()])
        for digest, text in (("1a", first), ("1a", second), ("2b", first))
    ]
    assert with_command[1].differences(with_command[0].document()) == []
    assert "command 1a there, 2b here" in with_command[2].differences(with_command[0].document())
    assert with_command[1].id == with_command[0].id != with_command[2].id


def test_a_run_that_was_taken_over_goes_on_at_each_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(folder, FIRST, 10)
    monkeypatch.setenv("SPOT_TRAINING_TAKE_OVER", FIRST.id)
    for number in range(1, 4):
        run = TrainingRun(script="train.py", arguments=["--name-of-this-start", str(number)])
        assert train(folder, run, 10 + number) == 9 + number
    monkeypatch.delenv("SPOT_TRAINING_TAKE_OVER")
    with pytest.raises(OtherRunError):
        train(folder, SECOND)


def test_the_default_directory_is_where_the_process_began(tmp_path: Path) -> None:
    script = "import os; from spot_training import Checkpointer; os.mkdir('a'); os.chdir('a');"
    script += "print(Checkpointer().location); one = Checkpointer('b'); os.chdir('..');"
    script += "one.restore(); os.chdir('/'); one.save(1, lambda folder: (folder / 'weights').touch())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("GPU_SPOT_")},
    )
    assert done.stdout.split() == [f"{tmp_path}/checkpoints"]
    assert (tmp_path / "a" / "b" / "step-000000000001").is_dir()  # where it was when it was named
    assert "use an absolute path" in done.stderr
