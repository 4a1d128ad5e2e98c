"""Several nodes of one training, as real processes of PyTorch over gloo: who is left goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from environments import environment, variables

from frameworks import node_losses
from frameworks.node_losses import LENGTH, NodePlay, missing_steps, samples_of_epochs, wrong_samples
from support.waiting import wait_until


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("torch")


@pytest.fixture
def ending() -> Iterator[list[NodePlay]]:
    plays = list[NodePlay]()
    yield plays
    for training in plays:
        training.end()


def test_the_other_node_goes_on_after_the_host_of_rank_0_and_of_its_store_was_killed(
    python: Path, tmp_path: Path, ending: list[NodePlay]
) -> None:
    training = NodePlay(python, tmp_path, "1:2", ["epochs=12", "every=0.2", "ddp=false"])
    ending.append(training)
    training.start(2)
    training.wait_for_world(2, steps=3)
    host = training.members()[0]
    loss = training.lose(host, "process")
    assert loss.was_first
    assert loss.repeated_steps <= loss.unsaved_steps
    assert loss.stalled_seconds < 30
    [survivor] = {"node-0", "node-1"} - {host}
    assert training.until(lambda: training.processes[survivor].poll() is not None)
    assert training.processes[survivor].poll() == 0, training.logs()
    epochs = samples_of_epochs(training.steps())
    assert epochs == {epoch: list(range(LENGTH)) for epoch in range(12)}
    assert missing_steps(training.steps()) == []


@pytest.mark.soak
def test_random_losses_of_four_nodes_repeat_no_saved_step_and_change_no_result(
    python: Path, tmp_path: Path, ending: list[NodePlay]
) -> None:
    training = NodePlay(python, tmp_path / "nodes", "2:4", ["workers=1"])
    ending.append(training)
    losses = node_losses.play(training, count=4, fewest=2, losses=10, seed=11)
    steps = training.steps()
    assert [loss.repeated_steps for loss in losses if loss.kind == "notice"] == [0, 0, 0]
    assert all(loss.repeated_steps <= loss.unsaved_steps for loss in losses)
    assert any(loss.was_first for loss in losses)
    assert max(loss.stalled_seconds for loss in losses) < 45, training.logs()
    expected = node_losses.expected_samples(python, steps[-1].step // node_losses.STEPS_PER_EPOCH + 2)
    assert wrong_samples(steps, expected) == []
    assert missing_steps(steps) == []


@pytest.mark.soak
def test_nodes_of_two_ranks_under_torchrun_end_with_the_weights_of_one_machine(
    python: Path, tmp_path: Path, ending: list[NodePlay]
) -> None:
    launcher = [str(python / "torchrun"), "--standalone", "--nproc-per-node=2"]
    training = NodePlay(
        python,
        tmp_path / "nodes",
        "1:2",
        ["epochs=60", "every=0.5", "pause=0.1", "ddp=false"],
        launcher=launcher,
    )
    ending.append(training)
    training.start(2)
    training.wait_for_world(2, steps=5)
    assert training.lose(training.members()[0], "notice").repeated_steps == 0
    training.start()
    training.wait_for_world(2, steps=5)
    loss = training.lose(training.members()[0], "silent")
    assert loss.repeated_steps <= loss.unsaved_steps
    wait_until(lambda: (tmp_path / "nodes/final.pt").exists())
    node_losses.reference(python, tmp_path / "reference", 60)
    compare = (
        "import sys, torch; a, b = map(torch.load, sys.argv[1:]);"
        " print(all(torch.allclose(a[key], b[key], rtol=1e-9) for key in a))"
    )
    finals = [tmp_path / name / "final.pt" for name in ("nodes", "reference")]
    command = [python / "python", "-c", compare, *finals]
    assert subprocess.check_output(command, env=variables(python), text=True).strip() == "True"
