"""Several nodes of one job with the shipped agent on each: a lost node neither ends it nor is a failure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from frameworks.node_losses import LENGTH, SCRIPT, NodePlay, missing_steps, samples_of_epochs
from packages.environments import environment, variables
from tests.node import configs
from tests.node.node_instances import SharedTables, instance
from tests.node.world import KilledError
from tests.waiting import wait_until
from userdata.agent import tasks
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice

_SPEED: Final = 10.0
_MARK: Final = "PLAYED_INSTANCE"
_BEGAN: Final = time.monotonic()
_BEGAN_AT: Final = time.time()


class _Clock:
    def __init__(self, instance: NodeInstance) -> None:
        self._instance = instance

    def wall(self) -> float:
        return _BEGAN_AT + self.monotonic()

    def monotonic(self) -> float:
        return (time.monotonic() - _BEGAN) * _SPEED

    def sleep(self, seconds: float) -> None:
        if self._instance.is_lost:
            raise KilledError(self._instance.name)
        time.sleep(max(seconds, 0.0) / _SPEED)


class _Host(SystemHost):
    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        return configs.REVISION if "rev-parse" in argv else "990\n"

    def mounted(self, path: Path) -> str | None:
        return "127.0.0.1:/"

    def unmount(self, path: Path) -> None:
        pass


class NodeInstance:
    """An instance with its agent; ``command`` runs in ``folder``, whose checkpoints all instances see."""

    def __init__(
        self, tables: SharedTables, name: str, folder: Path, python: Path, command: Sequence[str], nodes: Any
    ) -> None:
        self.name, self._folder, self._python = name, folder, python
        self.is_lost = False
        self.processes: list[subprocess.Popen[bytes]] = []
        self.error: BaseException | None = None
        self._handlers: list[Any] = []
        self.node = instance(
            tables,
            name,
            folder / "instances" / name,
            _Clock(self),
            _Host(),
            command=[*command],
            nodes=nodes,
            environment={"SPOT_TRAINING_ADDRESS": "127.0.0.1"},
        )
        self.node.data = folder / "data"
        self.node.mount = lambda: None  # type: ignore[method-assign]
        self.node.on_sigterm = self._handlers.append
        self.node.spawn = self._spawn
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()

    def _live(self) -> None:
        try:
            tasks.run(self.node)
        except KilledError:
            pass
        except BaseException as error:
            self.error = error

    def _spawn(self, argv: list[str], environment: dict[str, str], cwd: Path) -> Any:
        with (self._folder / f"log-{self.name}").open("ab") as log:
            process = subprocess.Popen(
                argv,
                env={**environment, **variables(self._python), _MARK: self.name},
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def give_notice(self) -> None:
        """Announce the end, as the watching unit does: the notice first, then SIGTERM to the agent."""
        announced = notice.from_lifecycle("Terminated", self.node.clock.wall(), 1200.0)
        notice.write(self.node.directory, announced)
        self._handlers[-1]()

    def lose(self) -> None:
        """End the agent and all processes of this play's command, which leaves the lease."""
        self.is_lost = True
        mark = f"{_MARK}={self.name}\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):  # torchrun gives each rank a session of its own
            with contextlib.suppress(OSError):
                if mark in path.read_bytes() and str(self._folder).encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        self.thread.join(timeout=60)

    def end(self) -> None:
        self.lose()
        for process in self.processes:
            process.kill()
            process.wait()


pytestmark = pytest.mark.soak
"""Four instances import PyTorch, with torchrun twice."""


@pytest.fixture
def ending() -> Iterator[list[NodeInstance]]:
    instances = list[NodeInstance]()
    yield instances
    for one in instances:
        one.end()


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
