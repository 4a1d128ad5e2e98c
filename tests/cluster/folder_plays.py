"""Plays of one checkpoint folder: Jobs whose pods are real processes, and their ends."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Final

from infra.kubernetes.context import Manifest
from tests.cluster.client import RefusedError
from tests.cluster.kubelet import PlayedNode, PodLife
from tests.cluster.plays import LABEL, JobPlay, JobState, Stage, job_objects
from tests.cluster.trainers import TrainerKubelet
from tests.kubernetes.entries import of_kind
from tests.kubernetes.local_pods import DOUBLES, TRAINER, TRAINS, LocalPod, lines, trainer
from tests.waiting import wait_until

_NODES: Final = 3
"""Of a folder at first: for the pods of two Jobs, and one for the successor of a pod that is cut off."""


@dataclass
class FolderPlay:
    """The Jobs that one entry has over time, all with the folder of checkpoints ``entry``."""

    stage: Stage
    kubelet: TrainerKubelet
    entry: str
    jobs: int = 0
    nodes: int = 0
    plays: list[JobPlay] = field(default_factory=list)

    def start(self, script: str = TRAINER, **changes: Any) -> JobPlay:
        """Start a Job under a name of its own, of another revision than the last."""
        if not self.jobs:
            for _ in range(_NODES):
                self.add_node()
        self.jobs += 1
        keys = {**trainer(self.entry, script), "revision": f"{self.jobs:040x}", **changes}
        objects = job_objects(**keys)
        job = of_kind(objects, "Job")
        for item in objects:
            if item["kind"] == "ServiceAccount" and item["metadata"]["name"] == self.entry:
                self.stage.api.apply(item)
        [pool] = [
            item
            for item in objects
            if item["kind"] == "NodePool" and item["metadata"]["name"].endswith(self.entry)
        ]
        name = f"{self.entry}-{self.jobs}"
        play = JobPlay(self.stage.api, self.kubelet, name, job, pool, self.entry)
        play.start(PodLife())
        self.plays.append(play)
        return play

    def add_node(self) -> None:
        """Add a node for the Jobs."""
        self.nodes += 1
        self.kubelet.add(PlayedNode(f"{self.entry}-node-{self.nodes}", {LABEL: self.entry}, 1))

    def trains(self) -> list[str]:
        """The names of the pods whose trainer has started, in order."""
        return lines(self.kubelet.checkpoints / self.entry / TRAINS)

    def doubles(self) -> list[str]:
        """The names of the pods whose trainer was not alone."""
        return lines(self.kubelet.checkpoints / self.entry / DOUBLES)

    def wait_for_trainer(self, before: int) -> str:
        """Wait for a trainer that has started after ``before`` others; return its pod's name."""
        wait_until(lambda: len(self.trains()) > before, 240, 0.05)
        return self.trains()[before]

    def container(self, pod: Manifest) -> LocalPod:
        return self.kubelet.containers[pod["metadata"]["uid"]]

    def remove(self) -> None:
        for play in self.plays:
            with contextlib.suppress(RefusedError):  # 404: it is gone
                play.remove()


def two_revisions(stage: Stage, kubelet: TrainerKubelet) -> FolderPlay:
    """Run the Jobs of two revisions beside each other on one folder; delete the first while it trains."""
    folder = FolderPlay(stage, kubelet, "revisions")
    first = folder.start()
    folder.wait_for_trainer(0)
    second = folder.start()
    waiting = second.next_pod()
    wait_until(lambda: "waiting up to" in folder.container(waiting).log(), interval_seconds=0.1)
    assert len(folder.trains()) == 1
    first.remove()
    folder.wait_for_trainer(1)
    folder.remove()
    return folder


def cut_off(stage: Stage, kubelet: TrainerKubelet) -> tuple[FolderPlay, JobState, int | None]:
    """Cut a trainer's node from the API server, and later from the file system."""
    folder = FolderPlay(stage, kubelet, "cut-off")
    play = folder.start()
    folder.wait_for_trainer(0)
    pod = play.next_pod()
    kubelet.cut_off(pod)
    # Its Job has a successor, which waits: the trainer goes on without the API server.
    successor = play.next_pod()
    wait_until(lambda: "waiting up to" in folder.container(successor).log(), interval_seconds=0.1)
    assert (folder.container(pod).code, len(folder.trains())) == (None, 1)
    folder.container(pod).cut_storage()
    folder.wait_for_trainer(1)
    state, code = play.state(), folder.container(pod).code
    folder.remove()
    return folder, state, code


def failed_twice(stage: Stage, kubelet: TrainerKubelet, entry: str, script: str) -> JobState:
    """End each pod of a Job that may fail once by ``script``; return the state in which it ends."""
    folder = FolderPlay(stage, kubelet, entry)
    state = folder.start(script, maxRestarts=1).wait_until_ended()
    folder.remove()
    return state


def outage(stage: Stage, kubelet: TrainerKubelet) -> tuple[FolderPlay, JobState]:
    """Start a Job that may fail once while the git host is down for longer than a pod waits."""
    folder = FolderPlay(stage, kubelet, "outage")
    kubelet.outage_of("outage").touch()
    try:
        play = folder.start(maxRestarts=1)
        pod = play.next_pod("Failed")
        state = play.counted(pod)
    finally:
        kubelet.outage_of("outage").unlink()
    folder.wait_for_trainer(0)
    folder.remove()
    return folder, state
