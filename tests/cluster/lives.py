"""Random lives of jobs on a cluster's own Job controller; their pods are real processes."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from infra.kubernetes.context import Manifest
from tests.cluster import plays
from tests.cluster.client import ClusterApi
from tests.cluster.folder_plays import FolderPlay
from tests.cluster.plays import JobPlay, Stage
from tests.cluster.trainers import TrainerKubelet
from tests.kubernetes.local_pods import TRAINER
from tests.waiting import wait_until

MAX_RESTARTS: Final = 20
_GRACE_SECONDS: Final = 5
_STEP_SECONDS: Final = 0.25
_TRAINER: Final = TRAINER.replace("sleep 0.2", "sleep 0.5")
_SILENT: Final = frozenset({"cut off", "no storage", "off"})
"""Ends that nobody reports."""


@dataclass
class Lives:
    """What came of the lives; ``restarts`` are seconds from an end to the next trainer, by its cause."""

    restarts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrongly_failed: list[str] = field(default_factory=list)
    doubles: int = 0

    def result(self) -> dict[str, Any]:
        return {
            "lives": sum(map(len, self.restarts.values())),
            "double_trainers": self.doubles,
            "wrongly_failed": len(self.wrongly_failed),
            "restart_p95_s": self._percentile(0.95, self.restarts),
            "restart_p95_s_reported": self._percentile(0.95, self.restarts.keys() - _SILENT),
            "restart_p95_s_silent": self._percentile(0.95, _SILENT),
            **{
                f"restart_{name}_s_by_cause": {
                    cause: self._percentile(share, [cause]) for cause in sorted(self.restarts)
                }
                for name, share in (("median", 0.5), ("p95", 0.95))
            },
            "lives_by_cause": {cause: len(values) for cause, values in sorted(self.restarts.items())},
            "wrong_ends": self.wrongly_failed,
        }

    def _percentile(self, share: float, causes: Iterable[str]) -> float | None:
        values = sorted(value for cause in causes for value in self.restarts.get(cause, ()))
        return round(values[min(int(share * len(values)), len(values) - 1)], 1) if values else None


def played(api: ClusterApi, folder: Path, minutes: float, folders: int, seed: int) -> dict[str, Any]:
    """Play lives of as many checkpoint folders at once, for so many minutes; return the figures."""
    for item in plays.job_objects():
        if item["kind"] in ("Namespace", "PersistentVolume", "PersistentVolumeClaim"):
            api.apply(item)
    lives, end = Lives(), time.monotonic() + 60 * minutes
    with (
        TrainerKubelet(api, plays.NAMESPACE, folder, _STEP_SECONDS) as kubelet,
        ThreadPoolExecutor(folders) as pool,
    ):
        stage = Stage(api, kubelet)
        running = [
            pool.submit(_Walk(stage, kubelet, f"walk{number}", random.Random(seed + number), lives).walk, end)
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
        self._actions: dict[str, Callable[[Manifest], float]] = {
            "cut off": self._cut_off,
            "deleted": lambda pod: _after(self._play.delete, pod, _GRACE_SECONDS),
            "drained": lambda pod: _after(self._play.drain, pod, _GRACE_SECONDS),
            "drained in an outage": self._drain_in_outage,
            "interrupted": self._interrupt,
            "killed": lambda pod: _after(self._folder.container(pod).kill),
            "no storage": lambda pod: _after(self._folder.container(pod).cut_storage),
            "off": self._end_machine,
            "own fault": lambda pod: _after(self._folder.container(pod).crash),
            "revision": lambda pod: _after(self._revise),
        }

    def _start(self) -> JobPlay:
        return self._folder.start(_TRAINER, maxRestarts=MAX_RESTARTS)

    def walk(self, end: float) -> None:
        """Play lives until a monotonic time."""
        self._folder.wait_for_trainer(0)
        while time.monotonic() < end:
            before = len(self._folder.trains())
            cause = self._chance.choice(sorted(self._actions))
            pod = self._trainer()
            time.sleep(self._chance.uniform(0, 1))
            began = self._actions[cause](pod)
            self._wait(before)
            self._lives.restarts[cause].append(max(0.0, time.monotonic() - began))
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

    def _end_machine(self, pod: Manifest) -> float:
        began = time.monotonic()
        self._folder.add_node()
        self._kubelet.end_machine(pod)
        return began

    def _interrupt(self, pod: Manifest) -> float:
        """Drain a pod's node, and end its machine when the grace is over, as EC2 does."""
        began = time.monotonic()
        self._folder.add_node()
        path = f"/api/v1/nodes/{pod['spec']['nodeName']}"
        self._folder.stage.api.patch(path, {"spec": {"unschedulable": True}})  # Karpenter has a taint
        self._play.drain(pod, _GRACE_SECONDS)
        self._play.wait_for_end(pod)
        self._kubelet.end_machine(pod)
        return began

    def _cut_off(self, pod: Manifest) -> float:
        """Cut a node off; its trainer goes on until its storage goes, some seconds later, or its machine."""
        self._folder.add_node()
        self._kubelet.cut_off(pod)
        time.sleep(self._chance.uniform(0, 20))
        container = self._folder.container(pod)
        return _after(self._chance.choice([container.cut_storage, container.kill]))

    def _revise(self) -> None:
        """Start another revision's Job, and delete the old one at the same time."""
        old = self._play
        if self._chance.random() < 0.5:
            old.delete_as_the_engine()
            self._play = self._start()
        else:
            self._play = self._start()
            old.remove()

    def _drain_in_outage(self, pod: Manifest) -> float:
        """Drain a pod while the git host is down; the restart is awaited from its return on."""
        outage = self._kubelet.outage_of(self._folder.entry)
        outage.touch()
        self._play.drain(pod, _GRACE_SECONDS)
        time.sleep(self._chance.uniform(12, 20))
        return _after(outage.unlink)


def _after(action: Callable[..., Any], *arguments: Any) -> float:
    """Return the monotonic time at which an action began."""
    began = time.monotonic()
    action(*arguments)
    return began
