"""Random lives of jobs on a cluster's own Job controller; their pods are real processes.

In a life one thing ends the trainer of a checkpoint folder, and another pod goes on. A folder's Jobs have
names of their own, so those of two revisions overlap: the engine alone would keep them apart.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from infra.kubernetes.context import Manifest
from tests.cluster import plays
from tests.cluster.client import ClusterApi
from tests.cluster.folder_plays import FolderPlay
from tests.cluster.kubelet import PlayedNode
from tests.cluster.local import control_plane
from tests.cluster.plays import JobPlay, Stage
from tests.cluster.trainers import TrainerKubelet
from tests.waiting import wait_until

MAX_RESTARTS: Final = 20
_GRACE_SECONDS: Final = 5
_LONGEST_JOB: Final = 5
"""Ends of one Job: its controller's waits grow to minutes."""
_BUILD: Final = Path(__file__).parent / "control_plane" / "build"


class LackingClusterError(Exception):
    """This machine has no control plane; the message says what it lacks."""


@dataclass
class Lives:
    """What came of the lives; ``restarts`` are seconds from an end to the next trainer, by its cause."""

    restarts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrongly_failed: list[str] = field(default_factory=list)
    doubles: int = 0

    def result(self) -> dict[str, Any]:
        """Return the figures."""
        seconds = sorted(value for values in self.restarts.values() for value in values)
        return {
            "lives": len(seconds),
            "double_trainers": self.doubles,
            "wrongly_failed": len(self.wrongly_failed),
            "restart_p95_s": round(_percentile(seconds, 0.95), 1) if seconds else None,
            "restart_median_s_by_cause": {
                cause: round(_percentile(sorted(values), 0.5), 1)
                for cause, values in sorted(self.restarts.items())
            },
            "lives_by_cause": {cause: len(values) for cause, values in sorted(self.restarts.items())},
            "wrong_ends": self.wrongly_failed,
        }


def _percentile(values: list[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[ClusterApi]:
    """Run a control plane in ``folder``. Raises ``LackingClusterError``."""
    for program in ("etcd", "openssl", "go"):
        if shutil.which(program) is None:
            raise LackingClusterError(f"no program {program}")
    cache = Path.home() / ".cache" / "gpu-spot" / "control-plane"
    built = subprocess.run([str(_BUILD), str(cache)], capture_output=True, text=True, check=False)
    if built.returncode:
        raise LackingClusterError(f"its build failed: {built.stderr.strip().splitlines()[-1:]}")
    program_path = Path(built.stdout.splitlines()[0])
    with control_plane(program_path, folder) as kubeconfig, contextlib.closing(ClusterApi(kubeconfig)) as api:
        for item in plays.job_objects():
            if item["kind"] in ("Namespace", "PersistentVolume", "PersistentVolumeClaim"):
                api.apply(item)
        yield api


def played(folder: Path, minutes: float, folders: int, seed: int) -> dict[str, Any]:
    """Play lives of as many checkpoint folders at once, for so many minutes; return the figures."""
    lives, end = Lives(), time.monotonic() + 60 * minutes
    with cluster(folder) as api:
        trainers = folder / "trainers"
        trainers.mkdir()
        with (
            TrainerKubelet(api, plays.NAMESPACE, trainers) as kubelet,
            ThreadPoolExecutor(folders) as pool,
        ):
            stage = Stage(api, kubelet)
            running = [
                pool.submit(
                    _Walk(stage, kubelet, f"walk{number}", random.Random(seed + number), lives).walk, end
                )
                for number in range(folders)
            ]
            for future in running:
                future.result()
    return lives.result()


class _Walk:
    """The lives of one checkpoint folder, one after another."""

    def __init__(
        self, stage: Stage, kubelet: TrainerKubelet, entry: str, chance: random.Random, lives: Lives
    ) -> None:
        self._folder = FolderPlay(stage, kubelet, entry)
        self._kubelet, self._chance, self._lives = kubelet, chance, lives
        self._play: JobPlay = self._start()
        self._ends, self._nodes = 0, 0
        self._actions: dict[str, Callable[[Manifest], None]] = {
            "drained": lambda pod: self._play.drain(pod, _GRACE_SECONDS),
            "deleted": lambda pod: self._play.delete(pod, _GRACE_SECONDS),
            "node off": self._end_machine,
            "node cut off": self._cut_off,
            "no storage": lambda pod: self._folder.container(pod).cut_storage(),
            "own fault": lambda pod: self._folder.container(pod).crash(),
            "revision": lambda pod: self._revise(),
            "drained in an outage": self._drain_in_outage,
        }

    def _start(self) -> JobPlay:
        return self._folder.start(maxRestarts=MAX_RESTARTS)

    def walk(self, end: float) -> None:
        """Play lives until a monotonic time."""
        self._folder.wait_for_trainer(0)
        while time.monotonic() < end:
            before = len(self._folder.trains())
            cause = self._chance.choice(sorted(self._actions))
            if self._ends >= _LONGEST_JOB:
                cause = "revision"
            self._ends += 1
            pod = self._trainer()
            time.sleep(self._chance.uniform(0, 2))
            began = time.monotonic()
            self._actions[cause](pod)
            self._wait(before)
            self._lives.restarts[cause].append(time.monotonic() - began)
        self._lives.doubles += len(self._folder.doubles())
        self._folder.remove()

    def _wait(self, before: int) -> None:
        """Wait for the next trainer; a Job that failed in between did so wrongly, and has a successor."""

        def goes_on() -> bool:
            if len(self._folder.trains()) > before:
                return True
            if any(item.startswith("Failed:") for item in self._play.state().conditions):
                self._lives.wrongly_failed.append(f"{self._play.name}: {self._play.state()}")
                self._revise()
            return False

        wait_until(goes_on, 900, 0.3)

    def _trainer(self) -> Manifest:
        """Return the pod of the newest trainer."""
        name = self._folder.trains()[-1]

        def of_name() -> Manifest | None:
            return next(
                (
                    pod
                    for play in self._folder.plays
                    for pod in play.pods()
                    if pod["metadata"]["name"] == name
                ),
                None,
            )

        pod = wait_until(of_name, interval_seconds=0.2)
        assert pod is not None
        return pod

    def _end_machine(self, pod: Manifest) -> None:
        self._kubelet.end_machine(pod)
        self._add_node(pod)

    def _cut_off(self, pod: Manifest) -> None:
        """Cut a node off; some seconds later its storage goes, or its machine."""
        self._kubelet.cut_off(pod)
        self._add_node(pod)
        time.sleep(self._chance.uniform(0, 20))
        container = self._folder.container(pod)
        self._chance.choice([container.cut_storage, container.kill])()

    def _add_node(self, pod: Manifest) -> None:
        self._nodes += 1
        name = f"{self._folder.entry}-new-{self._nodes}"
        self._kubelet.add(PlayedNode(name, pod["spec"]["nodeSelector"], 1))

    def _revise(self) -> None:
        """Start another revision's Job, and delete the old one at the same time."""
        old = self._play
        self._ends = 0
        if self._chance.random() < 0.5:
            old.delete_as_the_engine()
            self._play = self._start()
        else:
            self._play = self._start()
            old.remove()

    def _drain_in_outage(self, pod: Manifest) -> None:
        outage = self._kubelet.outage_of(self._folder.entry)
        outage.touch()
        self._play.drain(pod, _GRACE_SECONDS)
        time.sleep(self._chance.uniform(12, 20))
        outage.unlink()
