"""Plays the loss of nodes of a real training: processes over gloo on this machine, each a node.

A node is lost in one of four ways: ``notice`` (SIGTERM, it saves and ends), ``process`` (its training is
killed), ``machine`` (all its processes are killed), ``silent`` (all are frozen: no connection is closed, and
locks stay, until the others have gone on). What was trained is judged by the steps that the script writes,
and the order of samples by PyTorch's generator.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from environments import variables

from support.waiting import wait_until

KINDS: Final = ("notice", "machine", "silent", "process")
SCRIPT: Final = Path(__file__).with_name("train_nodes.py")
STEPS_PER_EPOCH: Final = 9
LENGTH: Final = 200
"""Samples of an epoch."""


class Step(NamedTuple):
    """A step of one rank."""

    at: float
    world: int
    rank: int
    ranks: int
    step: int
    epoch: int
    samples: list[int]


@dataclass
class Loss:
    """A loss, and what followed."""

    kind: str
    was_first: bool
    """Whether the node had rank 0, and with it the world's store and the saves."""
    stalled_seconds: float
    repeated_steps: int
    unsaved_steps: int
    """Steps after the newest checkpoint at the loss: no more may be repeated."""
    load: float
    """The machine's average of the last minute."""


@dataclass
class NodePlay:
    """The nodes of one training in ``folder``."""

    python: Path
    """The ``bin`` of an environment with PyTorch."""
    folder: Path
    limits: str
    options: Sequence[str] = ()
    launcher: Sequence[str] = ()
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, count: int = 1) -> list[str]:
        """Start nodes with new names; return these."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = [f"node-{len(self.processes) + number}" for number in range(count)]
        for name in names:
            self.processes[name] = self._start(name)
        return names

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        environment = {
            **variables(self.python),
            "SPOT_TRAINING_NODES": self.limits,
            "SPOT_TRAINING_NODE": name,
            "SPOT_TRAINING_ADDRESS": "127.0.0.1",
        }
        launcher = self.launcher or [str(self.python / "python")]
        with (self.folder / f"log-{name}").open("ab") as log:
            return subprocess.Popen(
                [*launcher, str(SCRIPT), str(self.folder), *self.options],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def trainer(self, name: str) -> int:
        """Return the process of a node's first rank, which its launcher has started, if there is one."""
        process = self.processes[name].pid
        if not self.launcher:
            return process
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return next(
            int(child) for child in children if SCRIPT.name in Path(f"/proc/{child}/cmdline").read_text()
        )

    def pids(self, name: str) -> list[int]:
        """Return the processes of a node: launcher, ranks, heartbeat."""
        mark = f"SPOT_TRAINING_NODE={name}\0".encode()
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes() + b"\0":
                    pids.append(int(path.parent.name))
            except OSError:
                continue
        return pids

    def signal(self, name: str, number: int) -> None:
        """Send a signal to all processes of a node."""
        for pid in self.pids(name):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def steps(self) -> list[Step]:
        """Return all steps of all ranks, by time."""
        lines = list[Step]()
        for path in (self.folder / "steps").glob("*"):
            text = path.read_text()
            lines += [Step(*json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]
        return sorted(lines)

    def membership(self) -> dict[str, Any]:
        """Return the nodes' document."""
        document: dict[str, Any] = json.loads((self.folder / "checkpoints/.nodes/nodes.json").read_text())
        return document

    def members(self) -> list[str]:
        """Return the nodes of the present world by rank; none between two worlds."""
        world = self.membership()["world"]
        return [node["name"] for node in world["nodes"]] if world else []

    def wait_for_world(self, nodes: int, *, steps: int = 1) -> int:
        """Wait until a world of so many nodes has trained; return its number."""

        def number() -> int:
            if len(self.members()) != nodes:
                return 0
            now = int(self.membership()["number"])
            return now if len({step.step for step in self.steps() if step.world == now}) >= steps else 0

        wait_until(lambda: (self.folder / "checkpoints/.nodes/nodes.json").exists())
        return self.until(number)

    def lose(self, name: str, kind: str) -> Loss:
        """Lose a node; wait until the others have trained on."""
        before, members = self.membership()["number"], self.members()
        at, saved_step = time.time(), self.saved_step()
        if kind == "notice":
            self.processes[name].terminate()
        elif kind == "process":
            os.kill(self.trainer(name), signal.SIGKILL)
        else:
            self.signal(name, signal.SIGSTOP if kind == "silent" else signal.SIGKILL)
        after = self.until(lambda: [step for step in self.steps() if step.world > before])[0]
        if kind == "notice":
            wait_until(lambda: self.processes[name].poll() is not None)
        self.signal(name, signal.SIGKILL)
        self.processes[name].wait()
        old = [step for step in self.steps() if step.world == before]
        last = max((step.step for step in old), default=0)
        last_at = max((step.at for step in old), default=at)
        return Loss(
            kind,
            members.index(name) == 0,
            after.at - (last_at if kind == "notice" else min(at, last_at)),
            last - after.step + 1,
            last - saved_step + 1,
            os.getloadavg()[0],
        )

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint; 0 without one."""
        names = [path.name for path in (self.folder / "checkpoints").glob("step-*")]
        return max((int(name.removeprefix("step-")) for name in names), default=0)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition is true; return its result."""
        try:
            return wait_until(condition, interval_seconds=0.1)
        except AssertionError:
            raise AssertionError(f"not true in time:\n{self.logs()}") from None

    def logs(self) -> str:
        """Return the end of what each node printed."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-2000:]}"
            for path in sorted(self.folder.glob("log-*"))
        )

    def end(self) -> None:
        """Kill what is left of all nodes."""
        for name, process in self.processes.items():
            self.signal(name, signal.SIGKILL)
            process.wait()


def play(
    nodes: NodePlay,
    *,
    count: int,
    fewest: int,
    losses: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
    seconds: float = 3600.0,
) -> list[Loss]:
    """Lose nodes at random, never below ``fewest``; each has a successor, that joins at the next save.

    It ends after so many ``losses`` or ``seconds``.
    """
    chance, results = random.Random(seed), list[Loss]()
    end_at = time.monotonic() + seconds
    nodes.start(count)
    nodes.wait_for_world(count)
    while len(results) < losses and time.monotonic() < end_at:
        for _ in range(count - fewest):
            kind = kinds[len(results) % len(kinds)]
            time.sleep(chance.uniform(0.2, 2.0))
            members = nodes.members()
            victim = members[0] if chance.random() < 0.4 else chance.choice(members)
            results.append(nodes.lose(victim, kind))
            if len(results) == losses or chance.random() < 0.5:
                break
        nodes.start(count - len(nodes.members()))
        nodes.wait_for_world(count)
    return results


def expected_samples(python: Path, epochs: int) -> dict[int, set[int]]:
    """Return the samples of each step by PyTorch's generator, with the script's seed."""
    code = (
        "import json, torch; print(json.dumps([torch.randperm(200, generator=torch.Generator()"
        f".manual_seed(5 * 1_000_003 + epoch)).tolist() for epoch in range({epochs})]))"
    )
    command = [str(python / "python"), "-c", code]
    orders = json.loads(subprocess.check_output(command, env=variables(python)))
    return {
        STEPS_PER_EPOCH * epoch + number: set(order[24 * number : 24 * (number + 1)])
        for epoch, order in enumerate(orders)
        for number in range(STEPS_PER_EPOCH)
    }


def reference(python: Path, folder: Path, epochs: int) -> None:
    """Train without losses on one machine; ``folder`` has its weights then."""
    folder.mkdir(parents=True, exist_ok=True)
    options = [f"epochs={epochs}", "pause=0", "every=100"]
    command = [str(python / "python"), str(SCRIPT), str(folder), *options]
    subprocess.run(command, env=variables(python), check=True, capture_output=True)


def wrong_samples(steps: Sequence[Step], expected: Mapping[int, set[int]]) -> list[str]:
    """Return the steps in which the ranks of a world had other samples than expected, or had one twice.

    The last step of a world may be that of some ranks only.
    """
    by_step = defaultdict[tuple[int, int], list[Step]](list)
    for step in steps:
        by_step[step.world, step.step].append(step)
    faults = []
    for (world, number), parts in sorted(by_step.items()):
        samples = [sample for part in parts for sample in part.samples]
        is_whole = len(parts) == parts[0].ranks
        if len(samples) != len(set(samples)) or (is_whole and set(samples) != expected[number]):
            faults.append(f"world {world}, step {number}: {sorted(samples)}")
    return faults


def samples_of_epochs(steps: Sequence[Step]) -> dict[int, list[int]]:
    """Return the samples of each epoch in the steps that count: of a repeated step the last world's."""
    last = {step.step: max(other.world for other in steps if other.step == step.step) for step in steps}
    samples = dict[int, list[int]]()
    for step in steps:
        if step.world == last[step.step]:
            samples.setdefault(step.epoch, []).extend(step.samples)
    return {epoch: sorted(found) for epoch, found in samples.items()}


def missing_steps(steps: Sequence[Step]) -> list[int]:
    """Return the steps up to the last one that no world has."""
    done = {step.step for step in steps}
    return sorted(set(range(max(done, default=-1) + 1)) - done)


def _torchruns(python: Path, folder: Path, port: int, count: int, *options: str) -> NodePlay:
    """Return nodes of torchrun, each an agent of its own; the first hosts the rendezvous."""
    launcher = [
        *(str(python / "torchrun"), f"--nnodes={count}", "--nproc-per-node=1", "--rdzv-backend=c10d"),
        *(f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=play", "--local-addr=127.0.0.1", *options),
    ]
    return NodePlay(python, folder, "", ["ddp=false"], launcher)


def plain_torchrun(python: Path, folder: Path, count: int) -> dict[str, Any]:
    """Kill a node of plain torchrun, start all again with a successor; return the time to the next step."""
    torchruns = _torchruns(python, folder, free_port(), count)
    try:
        names = torchruns.start(count)
        torchruns.until(lambda: len(torchruns.steps()) > 20 * count)
        at = time.time()
        torchruns.signal(names[-1], signal.SIGKILL)
        torchruns.until(lambda: all(process.poll() is not None for process in torchruns.processes.values()))
        ended, before = time.time() - at, len(torchruns.steps())
        again = _torchruns(python, folder, free_port(), count)
        try:
            again.start(count)
            first = again.until(lambda: again.steps()[before:])[0]
        finally:
            again.end()
    finally:
        torchruns.end()
    return {"torchrun_ended_s": round(ended, 1), "torchrun_stalled_s": round(first.at - at, 1)}


def elastic_torchrun(python: Path, folder: Path, count: int, seconds: float = 60.0) -> dict[str, Any]:
    """Kill a node of torchrun's elastic mode; return the steps that the others take in some time."""
    torchruns = _torchruns(python, folder, free_port(), count, "--max-restarts=3")
    torchruns.launcher = [
        part.replace(f"--nnodes={count}", f"--nnodes={count - 1}:{count}") for part in torchruns.launcher
    ]
    try:
        names = torchruns.start(count)
        torchruns.until(lambda: len(torchruns.steps()) > 20 * count)
        torchruns.signal(names[-1], signal.SIGKILL)
        at = time.time()
        time.sleep(seconds)
        return {"torchrun_elastic_steps": sum(step.at > at + 2 for step in torchruns.steps())}
    finally:
        torchruns.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
