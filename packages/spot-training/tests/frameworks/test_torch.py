"""PyTorch, killed and told at random moments: the weights are an undisturbed training's, to the bit."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from environments import environment, play, variables

run = partial(play, seconds=170)
END = """
import atexit, sys
from torch import distributed
from spot_training.torch.ranks import TorchRanks

def show():
    for group in (ranks._flags, ranks._saves):
        try:
            print("alive", distributed.get_rank(group))
        except ValueError:
            print("destroyed")

distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/1", rank=0, world_size=1)
atexit.register(show)
ranks = TorchRanks()
assert ranks.any(True, False) == [True, False]
if sys.argv[2] != "nothing":
    distributed.destroy_process_group()
if sys.argv[2] == "again":
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/2", rank=0, world_size=1)
"""


@pytest.fixture(scope="session")
def torch_bin() -> Path:
    return environment("torch")


@pytest.mark.parametrize("each", [1, pytest.param(5, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("module", "options"),
    [
        pytest.param("train_torch", [], id="alone"),
        pytest.param("train_torch", ["--ranks", "2"], id="two ranks"),
        pytest.param("train_trainer", [], id="Trainer"),
    ],
)
def test_notices_and_kills_change_no_bit(
    torch_bin: Path, tmp_path: Path, module: str, options: list[str], each: int
) -> None:
    counts = ["--terms", str(each), "--kills", str(each)]
    result = run(torch_bin, "kills", module, "--folder", tmp_path, *counts, *options)
    assert (result["sigterm"], result["sigkill"]) == (each, each)
    assert result["mismatches"] == result["unreadable"] == 0
    assert result["faults"] == []
    assert result["lost_steps_with_notice"] == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--option", 'loader="stateful"', "--option", "workers=2"], id="a stateful loader"),
        pytest.param(["--option", "workers=2"], id="workers"),
        pytest.param(
            ["--ranks", "2", "--option", "horovod=true", "--option", "asynchronous=false"],
            id="a double of Horovod",
        ),
    ],
)
def test_other_ways_to_train_change_no_bit(torch_bin: Path, tmp_path: Path, options: list[str]) -> None:
    result = run(
        torch_bin, "kills", "train_torch", "--folder", tmp_path, "--terms", "1", "--kills", "1", *options
    )
    assert result["kills"] == 2
    assert result["mismatches"] == result["unreadable"] == result["lost_steps_with_notice"] == 0
    assert result["faults"] == []


@pytest.mark.parametrize(("stride", "writes"), [(10, 3), pytest.param(5, 5, marks=pytest.mark.soak)])
def test_a_kill_at_some_touches_of_the_disk_loses_no_checkpoint(
    torch_bin: Path, tmp_path: Path, stride: int, writes: int
) -> None:
    # Saves in the training's own thread: the same ones on any machine. All touches: make bench-checkpoint.
    quick = ["--option", "pause=0", "--option", "every=1e-9", "--option", "asynchronous=false"]
    touches = ["--each-write", "--stride", str(stride)]
    result = run(torch_bin, "kills", "train_torch", "--folder", tmp_path, *touches, *quick)
    assert result["writes"] == writes
    assert result["mismatches"] == result["unreadable"] == 0
    assert result["faults"] == []


def test_what_two_ranks_began_one_finishes(torch_bin: Path, tmp_path: Path) -> None:
    result = run(torch_bin, "kills", "train_torch", "--folder", tmp_path, "--fewer-ranks")
    assert result["codes"] == [0, 0, 0], result["log"]
    assert result["lost_steps_with_notice"] == 0
    assert result["faults"] == []


def test_what_two_ranks_of_a_trainer_began_one_does_not_go_on_with(torch_bin: Path, tmp_path: Path) -> None:
    result = run(torch_bin, "kills", "train_trainer", "--folder", tmp_path, "--fewer-ranks")
    assert result["codes"] == [0, 0, 1]
    last = result["log"].splitlines()[-1]
    assert "MismatchError" in last
    assert "was saved by 2 processes, and can be loaded only by as many, not by 1" in last


def test_a_trainer_with_ranks_on_different_disks_saves_only_resumable_checkpoints(
    torch_bin: Path, tmp_path: Path
) -> None:
    module = ["train_trainer", "--folder", tmp_path, "--fewer-ranks", "--option", "apart=true"]
    result = run(torch_bin, "kills", *module)
    assert result["codes"] == [1, 1, 0]  # the one rank afterwards found nothing, and began anew
    assert "has no rng_state_1.pth; use an output_dir on a disk that all ranks see" in result["begun"]


def test_what_cannot_go_on_is_refused_in_one_line(torch_bin: Path, tmp_path: Path) -> None:
    result = run(torch_bin, "refusals_torch", tmp_path)
    assert result.pop("newest truncated") == 2  # steps of the epoch that was lost with it
    for case, part in {
        "plain loader": "use batch_sampler=EpochBatches(len(data), batch_size)",
        "no parts": "pass model=..., optimizer=...",
        "another model": "step-000000000002 is of another model",
        "other data": "was saved with other data: {'length': 8, 'seed': 0",
        "a stream that is read again": "a Numbers has no state_dict: a resumed epoch reads it again",
        "a stream that has changed": "not resumed: the order of samples in this epoch",
        "workers that stay": "StatefulNumbers with a state in persistent workers cannot be resumed; set",
        "a state with arguments": "state_dict of a CountedNumbers needs arguments; use one without",
        "no DataLoader": "a list has no position that can be saved; use a DataLoader of torch.utils.data",
        "unreadable": "it has spot_training.errors.SpotTrainingError; use tensors, plain values",
        "no process group": "call init_process_group() first",
    }.items():
        text = result.pop(case)
        assert part in text
        assert "\n" not in text
    assert not result


@pytest.mark.parametrize("destroyed", ["nothing", "all", "again"])
def test_no_group_of_ours_outlives_the_script(torch_bin: Path, tmp_path: Path, destroyed: str) -> None:
    command = [torch_bin / "python", "-c", END, tmp_path, destroyed]
    result = subprocess.run(command, env=variables(torch_bin), capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout.split()) == (0, ["destroyed"] * 2), result.stderr
    assert "Traceback" not in result.stderr
