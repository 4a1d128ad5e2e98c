"""A real training on the pods of a Job: what is lost comes back, and the others' pods train on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from frameworks.node_losses import LENGTH, SCRIPT, NodePlay, missing_steps, samples_of_epochs
from infra.kubernetes.context import Manifest
from packages.environments import environment, variables
from tests.cluster import plays
from tests.cluster.client import ClusterApi
from tests.cluster.kubelet import PodLife
from tests.cluster.plays import JobPlay
from tests.cluster.survivor_plays import NODES, index_of
from tests.cluster.trainers import TrainerKubelet
from tests.kubernetes.entries import of_kind
from tests.waiting import wait_until

pytestmark = pytest.mark.soak
"""Seven pods import PyTorch, and a lost machine's pod is given up after a minute."""
ENTRY = "survivors"


def started(api: ClusterApi, kubelet: TrainerKubelet) -> JobPlay:
    objects = plays.job_objects(name=ENTRY, nodes=NODES, command=["/bin/sh", "-c", "exec $PLAY"])
    for item in objects:
        if item["kind"] in ("Namespace", "PersistentVolume", "PersistentVolumeClaim", "ServiceAccount"):
            api.apply(item)
    pool = next(item for item in objects if item["kind"] == "NodePool")
    play = JobPlay(api, kubelet, ENTRY, of_kind(objects, "Job"), pool)
    play.start(PodLife())
    return play


def test_a_training_goes_on_without_what_is_lost_and_is_complete_once(
    api: ClusterApi, tmp_path: Path
) -> None:
    python = environment("torch")
    folder = tmp_path / "training"
    folder.mkdir()
    command = f"{python / 'python'} {SCRIPT} {folder} every=0.5 ddp=false stops=true"
    more = {**variables(python), "PLAY": command, "SPOT_TRAINING_ADDRESS": "127.0.0.1"}
    with TrainerKubelet(api, plays.NAMESPACE, tmp_path, variables=more) as kubelet:
        (folder / "checkpoints").symlink_to(kubelet.checkpoints / ENTRY)
        (kubelet.checkpoints / ENTRY).mkdir()
        training, play = NodePlay(python, folder, "2:4"), started(api, kubelet)

        def pod_of(name: str) -> Manifest:
            return next(pod for pod in play.pods() if index_of(pod) == int(name))

        first_world = training.wait_for_world(4, steps=3)
        names = training.members()
        assert sorted(names) == ["0", "1", "2", "3"]
        untouched = pod_of(names[3])["metadata"]["uid"]

        play.drain(pod_of(names[0]))  # rank 0, with the world's store
        training.until(lambda: training.membership()["number"] > first_world)
        training.wait_for_world(4, steps=3)
        steps = training.steps()
        saved = max(step.step for step in steps if step.world == first_world)
        assert min(step.step for step in steps if step.world > first_world) == saved + 1  # none is repeated

        kubelet.end_machine(pod_of(names[1]))
        training.wait_for_world(3, steps=3)
        training.wait_for_world(4, steps=3)

        processes = [
            pid for pid in training.pids(names[2]) if str(folder) in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        os.kill(min(processes), signal.SIGKILL)
        training.wait_for_world(3, steps=3)
        training.wait_for_world(4, steps=3)
        assert play.state().counted == 1

        (folder / "stop").touch()
        state = play.wait_until_complete()
        assert (state.counted, state.failed_indexes) == (1, ",".join(sorted(names[:2])))
        container = kubelet.containers[untouched]
        wait_until(lambda: container.code is not None)
        assert "goes on" in container.log()  # in each world in a new child of one process
        assert container.log().count("gpu-spot: lease of") == 1
        assert len(kubelet.containers) == 4 + 3
        assert (folder / "final.pt").exists()
        steps = training.steps()
        samples = samples_of_epochs(steps)
        assert samples == {epoch: list(range(LENGTH)) for epoch in range(max(samples) + 1)}
        assert missing_steps(steps) == []
        play.remove()
