"""Karpenter itself on the stack's NodePools and jobs; its kwok provider makes the nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from infra.kubernetes.context import Manifest
from tests.cluster import clusters, controllers, plays
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.kubelet import PlayedKubelet, PodLife
from tests.cluster.plays import JobPlay, JobState
from tests.kubernetes.entries import of_kind
from tests.waiting import wait_until

_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
_POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
_EMPTY_SECONDS: Final = 2
"""In place of a minute, after which an empty node goes."""
_WATCHED_SECONDS: Final = 15


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterApi, PlayedKubelet]]:
    controllers.built("karpenter")
    with (
        clusters.cluster(tmp_path_factory.mktemp("karpenter")) as api,
        controllers.karpenter(api, ("g6.xlarge", "g5.xlarge")),
        controllers.KarpenterKubelet(api, plays.NAMESPACE) as kubelet,
    ):
        yield api, kubelet


class NodesPlay(JobPlay):
    """A job of the stack with its NodePool, on nodes that Karpenter makes."""

    def __init__(self, api: ClusterApi, kubelet: PlayedKubelet, name: str, **entry: Any) -> None:
        objects = plays.job_objects(name=name, **entry)
        kinds = ("Namespace", "ServiceAccount", "PersistentVolume", "PersistentVolumeClaim")
        for item in objects:
            if item["kind"] in kinds:
                api.apply(item)
        [pool] = [
            item for item in objects if item["kind"] == "NodePool" and item["metadata"]["name"].endswith(name)
        ]
        self.pool = controllers.for_kwok(api, pool)
        self.pool["spec"]["disruption"]["consolidateAfter"] = f"{_EMPTY_SECONDS}s"
        api.apply(self.pool)
        job = of_kind(objects, "Job")
        super().__init__(api, kubelet, name, job, pool, nodes="Karpenter's")
        selector = job["spec"]["template"]["spec"]["nodeSelector"]
        self.job["spec"]["template"]["spec"]["nodeSelector"] = selector

    def claims(self) -> list[Manifest]:
        return self._api.items(
            _CLAIMS, labelSelector=f"karpenter.sh/nodepool={self.pool['metadata']['name']}"
        )

    def interrupt(self, pod: Manifest) -> None:
        """Delete the NodeClaim of a pod's node, as Karpenter does at AWS's warning."""
        node = pod["spec"]["nodeName"]

        def of_node() -> list[str]:  # Karpenter writes the node's name after the pod is bound
            return [
                claim["metadata"]["name"]
                for claim in self.claims()
                if claim.get("status", {}).get("nodeName") == node
            ]

        [name] = wait_until(of_node, interval_seconds=0.1)
        self._api.delete(f"{_CLAIMS}/{name}")


def interrupted(play: NodesPlay, life: PodLife, count: int) -> tuple[JobState, int, int]:
    """Interrupt a job; return its state, its pods at once at most, and the number of interruptions."""
    play.start(life)
    for _ in range(count):
        pod = play.next_pod()
        play.interrupt(pod)
        play.wait_for_end(pod)
    play.end(play.next_pod(), 0)
    state = play.wait_until_complete()
    return state, play.at_once(), count


def has_no_nodes(play: NodesPlay) -> bool:
    return not play.claims()


def disrupt(stage: tuple[ClusterApi, PlayedKubelet], jobs: int, each: int) -> int:
    """Interrupt ``jobs`` jobs at the same time; return the number of disruptions."""
    lives = (plays.SAVES, PodLife(stops=1.5, stop_code=137))
    with ThreadPoolExecutor(jobs) as pool:
        made = [NodesPlay(*stage, f"spot-{each}-{number}") for number in range(jobs)]
        results = [
            pool.submit(interrupted, play, lives[number % 2], each) for number, play in enumerate(made)
        ]
        found = [result.result() for result in results]
    for state, at_once, _ in found:
        assert (state.counted, at_once, state.succeeded) == (0, 1, 1)
    for play in made:
        wait_until(lambda play=play: has_no_nodes(play), interval_seconds=0.5)  # type: ignore[misc]
        play.remove()
    return sum(count for *_, count in found)


def test_interruptions_count_nothing_and_empty_nodes_go(stage: tuple[ClusterApi, PlayedKubelet]) -> None:
    assert disrupt(stage, jobs=2, each=3) == 6


@pytest.mark.soak
def test_two_hundred_disruptions(stage: tuple[ClusterApi, PlayedKubelet], record_property: Any) -> None:
    count = disrupt(stage, jobs=8, each=25)
    record_property(
        "cluster",
        f"Karpenter: {count} disruptions, none counted, never two pods of a job at once, all jobs complete",
    )
    assert count == 200


def test_drift_takes_no_node_from_a_job(stage: tuple[ClusterApi, PlayedKubelet]) -> None:
    api, _ = stage
    play = NodesPlay(*stage, "drifts")
    play.start(PodLife())
    pod = play.next_pod()
    [claim] = play.claims()
    labels = {"template": {"metadata": {"labels": {"other": "image"}}}}
    api.request(
        "PATCH", f"{_POOLS}/{play.pool['metadata']['name']}", {"spec": labels}, "application/merge-patch+json"
    )

    def is_drifted() -> bool:
        conditions = api.get(f"{_CLAIMS}/{claim['metadata']['name']}")["status"]["conditions"]
        return any(item["type"] == "Drifted" and item["status"] == "True" for item in conditions)

    wait_until(is_drifted, interval_seconds=0.5)
    end = time.monotonic() + _WATCHED_SECONDS
    while time.monotonic() < end:
        [same] = play.pods()
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert "deletionTimestamp" not in api.get(f"{_CLAIMS}/{claim['metadata']['name']}")["metadata"]
        time.sleep(0.5)
    play.end(pod, 0)
    play.wait_until_complete()
    wait_until(lambda: has_no_nodes(play), interval_seconds=0.5)
    play.remove()


def test_a_pod_that_fits_no_node_gets_none(stage: tuple[ClusterApi, PlayedKubelet]) -> None:
    """By its own demand: Karpenter says so in an event, and makes no node."""
    api, _ = stage
    play = NodesPlay(*stage, "too-big")
    play.job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    play.start(PodLife())

    def is_said() -> bool:
        path = f"/api/v1/namespaces/{plays.NAMESPACE}/events"
        try:
            events = api.items(path, fieldSelector="reason=FailedScheduling")
        except RefusedError:
            return False
        return any(
            "too-big" in event["involvedObject"]["name"] and "no instance type" in event["message"]
            for event in events
        )

    wait_until(is_said, interval_seconds=0.5)
    assert has_no_nodes(play)
    play.remove()
