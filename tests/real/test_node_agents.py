"""Several nodes of one job with the shipped agent on each: a lost node neither ends it nor is a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.node_instances import SharedTables
from tests.real.environments import environment
from tests.real.node_agents import NodeInstance
from tests.real.node_losses import SCRIPT, NodePlay, missing_steps
from tests.real.test_nodes import LENGTH, samples_of_epochs
from tests.waiting import wait_until

pytestmark = pytest.mark.soak
"""Four instances import PyTorch, with torchrun twice."""


@pytest.fixture
def ending() -> Iterator[list[NodeInstance]]:
    instances = list[NodeInstance]()
    yield instances
    for instance in instances:
        instance.end()


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_nodes_go_on_after_losses_and_end_the_job_once(
    launcher: str, tmp_path: Path, ending: list[NodeInstance]
) -> None:
    python, tables = environment("torch"), SharedTables()
    training = NodePlay(python, tmp_path, "1:2")
    checkpoints = tmp_path / "data/checkpoints/resnet"
    checkpoints.mkdir(parents=True)
    (tmp_path / "checkpoints").symlink_to(checkpoints)  # where the script and its play look
    command = [str(python / launcher), str(SCRIPT), str(tmp_path)]
    command[1:1] = ["--standalone", "--nproc-per-node=1"] if launcher == "torchrun" else []
    command += ["every=0.5", "ddp=false", "stops=true"]

    def launch() -> None:
        name, limits = f"i-{len(ending)}", {"min": 1, "max": 2}
        ending.append(NodeInstance(tables, name, tmp_path, python, command, limits))

    def holder(rank: int) -> NodeInstance:
        """Return the instance that is the node of a rank."""
        name = tables.item(training.members()[rank])["holder"]["S"]
        return next(instance for instance in ending if instance.name == name)

    launch()
    launch()
    first_world = training.wait_for_world(2, steps=3)
    announced = holder(0)
    announced.give_notice()
    wait_until(lambda: not announced.thread.is_alive())
    training.wait_for_world(1, steps=1)
    steps = training.steps()
    saved = max(step.step for step in steps if step.world == first_world)
    assert min(step.step for step in steps if step.world > first_world) == saved + 1  # none is repeated
    launch()
    training.wait_for_world(2, steps=3)

    unannounced = holder(0)
    unannounced.lose()
    training.wait_for_world(1, steps=3)
    launch()  # it has to wait until the lost one's lease has expired
    training.wait_for_world(2, steps=3)

    (tmp_path / "stop").touch()
    remaining = [instance for instance in ending if instance not in (announced, unannounced)]
    wait_until(lambda: not any(instance.thread.is_alive() for instance in remaining))
    assert [instance.error for instance in ending] == [None] * 4
    job = tables.item("resnet")
    assert (job["state"]["S"], job["reason"]["S"]) == ("done", "")
    assert set(tables.finished) == {job["revision"]["S"]}
    assert not tables.metrics
    assert all(len(instance.processes) == 1 for instance in ending)  # no command was started again
    assert all("holder" not in tables.item(f"resnet-node-{number}") for number in range(2))
    assert (tmp_path / "final.pt").exists()
    steps = training.steps()
    samples = samples_of_epochs(steps)
    assert samples == {epoch: list(range(LENGTH)) for epoch in range(max(samples) + 1)}
    assert missing_steps(steps) == []
