"""Jobs of entries on a cluster's own Job controller, while their pods end in ways that matter."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from infra.kubernetes.context import GPU, Manifest
from infra.kubernetes.jobs import STOPPED_EXIT_CODE
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.kubelet import PlayedKubelet, PlayedNode, PodLife
from tests.kubernetes.entries import CLUSTER, of_kind, rendered
from tests.waiting import wait_until

NAMESPACE: Final = "plays"
LABEL: Final = "gpu-spot-test/play"
"""Of played nodes."""
SAVES: Final = PodLife(stops=1, stop_code=STOPPED_EXIT_CODE)
"""``supervise.sh`` after SIGTERM: the command has saved."""
DEAF: Final = PodLife(stops=9999)
"""A command that does not end within its grace period."""
CHECKS_OUT: Final = PodLife(starts=9999, stops=0.5)
"""A pod that still pulls its image or clones the repository."""
REPLACED_STOPS_SECONDS: Final = 8.0
_SHORT_GRACE_SECONDS: Final = 2
_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"


@dataclass(frozen=True)
class JobState:
    """What a Job's status says: ``conditions`` are ``TYPE: REASON`` of those that hold."""

    counted: int
    succeeded: int
    conditions: tuple[str, ...]
    failed_indexes: str

    @property
    def has_ended(self) -> bool:
        """Whether the Job is complete, failed, or about to be failed."""
        return any(item.startswith(("Complete:", "Failed:", "FailureTarget:")) for item in self.conditions)


class JobPlay:
    """One Job of a rendered entry, under a name of its own."""

    def __init__(
        self,
        api: ClusterApi,
        kubelet: PlayedKubelet,
        name: str,
        job: Manifest,
        pool: Manifest,
        nodes: str | None = None,
    ) -> None:
        self._api, self._kubelet = api, kubelet
        self.job, self._pool = copy.deepcopy(job), pool
        self.name = self.job["metadata"]["name"] = name
        self._seen: set[str] = set()
        template = self.job["spec"]["template"]
        template["spec"]["nodeSelector"] = {LABEL: nodes or name}
        namespace = job["metadata"]["namespace"]
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        gpus = int(template["spec"]["containers"][0]["resources"]["limits"][GPU])
        for number in range(0 if nodes else 2 * self.job["spec"].get("parallelism", 1)):
            kubelet.add(PlayedNode(f"{name}-{number}", template["spec"]["nodeSelector"], gpus))

    def start(self, life: PodLife, **changes: Any) -> None:
        """Apply the Job, with changed keys of its spec, for pods that live so."""
        job = copy.deepcopy(self.job)
        job["spec"] |= changes
        metadata = job["spec"]["template"]["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), **life.annotation()}
        self._api.apply(job)

    def template_of(self, **entry: Any) -> Manifest:
        """Return the pod template of the entry with changes, for this play's nodes."""
        template: Manifest = of_kind(job_objects(**entry), "Job")["spec"]["template"]
        template["spec"]["nodeSelector"] = self.job["spec"]["template"]["spec"]["nodeSelector"]
        return template

    def pods(self) -> list[Manifest]:
        return self._api.items(self._pods, labelSelector=f"batch.kubernetes.io/job-name={self.name}")

    def next_pod(self, phase: str = "Running") -> Manifest:
        """Wait for a pod that was not returned before, in a phase and on a node."""

        def appeared() -> Manifest | None:
            self._kubelet_works()
            return next(
                (
                    pod
                    for pod in self.pods()
                    if pod["metadata"]["uid"] not in self._seen
                    and pod["status"]["phase"] == phase
                    and pod["spec"].get("nodeName")
                ),
                None,
            )

        pod = wait_until(appeared, interval_seconds=0.1)
        self._seen.add(pod["metadata"]["uid"])
        return pod

    def _kubelet_works(self) -> None:
        assert self._kubelet.is_alive, self._kubelet.errors[-3:]

    def state(self) -> JobState:
        status = self._api.get(self._jobs)["status"]
        conditions = [item for item in status.get("conditions") or () if item["status"] == "True"]
        return JobState(
            status.get("failed", 0) - _length(status.get("failedIndexes", "")),
            status.get("succeeded", 0),
            tuple(f"{item['type']}: {item['reason']}" for item in conditions),
            status.get("failedIndexes", ""),
        )

    def wait_for_end(self, pod: Manifest) -> None:
        """Wait until a pod has ended; its object may be gone with it."""

        def has_ended() -> bool:
            phases = {item["metadata"]["uid"]: item["status"]["phase"] for item in self.pods()}
            return phases.get(pod["metadata"]["uid"], "Failed") in ("Succeeded", "Failed")

        wait_until(has_ended, interval_seconds=0.1)

    def counted(self, pod: Manifest) -> JobState:
        """Wait until a pod has ended and the controller has judged it; return the Job's state."""
        self.wait_for_end(pod)

        def is_judged() -> bool:
            held = {item["metadata"]["uid"] for item in self.pods() if item["metadata"].get("finalizers")}
            uncounted = self._api.get(self._jobs)["status"].get("uncountedTerminatedPods") or {}
            return pod["metadata"]["uid"] not in held and not any(uncounted.values())

        wait_until(is_judged, interval_seconds=0.1)
        return self.state()

    def wait_until_ended(self) -> JobState:
        """Wait until the Job has ended, and return its state."""
        wait_until(lambda: self.state().has_ended, interval_seconds=0.1)
        return self.state()

    def wait_until_complete(self) -> JobState:
        """Wait until the Job is complete and its other pods have ended, and return its state."""
        wait_until(lambda: any(item.startswith("Complete:") for item in self.state().conditions))
        return self.state()

    def drain(self, pod: Manifest, grace: int | None = None) -> None:
        """Take a pod's node as Karpenter 1.14 does, with ``grace`` seconds instead of the pod's own."""
        if pod["metadata"].get("annotations", {}).get(_DO_NOT_DISRUPT) != "true":
            self.evict(pod, grace)
        elif "terminationGracePeriod" in self._pool["spec"]["template"]["spec"]:
            self.delete(pod, grace)

    def evict(self, pod: Manifest, grace: int | None = None) -> None:
        """Evict a pod by the API, which sets its condition ``DisruptionTarget``."""
        metadata = pod["metadata"]
        eviction: Manifest = {
            **{"apiVersion": "policy/v1", "kind": "Eviction"},
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        }
        if grace is not None:
            eviction["deleteOptions"] = {"gracePeriodSeconds": grace}
        self._api.post(f"{self._pods}/{metadata['name']}/eviction", eviction)

    def delete(self, pod: Manifest, grace: int | None = None) -> None:
        """Delete a pod's object: no condition is set."""
        options = None if grace is None else {"gracePeriodSeconds": grace}
        self._api.delete(f"{self._pods}/{pod['metadata']['name']}", options)

    def end(self, pod: Manifest, code: int) -> None:
        self._kubelet.end(pod, code)

    def lose_node(self, pod: Manifest) -> None:
        self._kubelet.lose(pod["spec"]["nodeName"])

    def at_once(self) -> int:
        """Return the highest number of the Job's pods that were alive at one moment."""
        return self._kubelet.at_once[self.name]

    def remove(self) -> None:
        self._api.delete(self._jobs, {"propagationPolicy": "Background"})

    def delete_as_the_engine(self) -> None:
        """Delete the Job as Pulumi's provider does before it creates another: its pods may still stop."""
        self._api.delete(self._jobs, {"propagationPolicy": "Foreground"})


@dataclass(frozen=True)
class Stage:
    """Makes plays of the entries' Jobs; the namespace and what Jobs refer to are there."""

    api: ClusterApi
    kubelet: PlayedKubelet

    def of_job(self, name: str, **entry: Any) -> JobPlay:
        """Return the play of a job's Job, or of its Indexed Job."""
        items = job_objects(**entry)
        return JobPlay(self.api, self.kubelet, name, of_kind(items, "Job"), job_pool(items))

    def of_nodes(self, name: str, nodes: int) -> JobPlay:
        """Return the play of the Job that Trainer and JobSet make of a run on several nodes."""
        items = nodes_objects(nodes)
        [replicated] = of_kind(items, "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
        # Trainer sets both numbers from numNodes, JobSet the mode (jobset, ``pkg/controllers``).
        of_trainer = {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes}
        metadata = {**of_kind(items, "TrainJob")["metadata"], "name": name}
        job: Manifest = {
            **{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata},
            "spec": {**replicated["template"]["spec"], **of_trainer},
        }
        return JobPlay(self.api, self.kubelet, name, job, job_pool(items))


def job_objects(**entry: Any) -> list[Manifest]:
    """Render the objects of a job; no volume of its pods has to be provisioned."""
    return rendered(job={"datasets": [], **entry}, kubernetes={**CLUSTER, "namespace": NAMESPACE})


def nodes_objects(nodes: int) -> list[Manifest]:
    """Render the objects of a job on several nodes."""
    capacity = {"kind": "mixed-asg", "target": 1, "max": 2, "instanceTypes": ["g6.12xlarge"]}
    return job_objects(nodes=nodes, capacity=capacity)


def job_pool(items: list[Manifest]) -> Manifest:
    """Return the NodePool of the job among the objects of a job and a service."""
    [pool] = [item for item in items if item["kind"] == "NodePool" and "resnet" in item["metadata"]["name"]]
    return pool


def _length(indexes: str) -> int:
    """Return the number of indexes in a text such as ``0,2-5``."""
    intervals = [[int(number) for number in part.split("-")] for part in indexes.split(",") if part]
    return sum(1 + interval[-1] - interval[0] for interval in intervals)


def taken(stage: Stage, name: str, life: PodLife, take: Callable[[JobPlay, Manifest], None]) -> JobState:
    """Play a Job whose first pod is taken; return its state once the pod is counted."""
    play = stage.of_job(name)
    play.start(life)
    pod = play.next_pod("Pending" if life is CHECKS_OUT else "Running")
    take(play, pod)
    try:
        return play.counted(pod)
    finally:
        play.remove()


def drained_thrice(stage: Stage, name: str, **entry: Any) -> tuple[list[float], JobState, int]:
    """Drain pods that do not end in time, thrice, of a Job that may fail once."""
    play = stage.of_job(name, maxRestarts=1, **entry)
    play.start(DEAF)
    waits = []
    pod = play.next_pod()
    for _ in range(3):
        play.drain(pod, _SHORT_GRACE_SECONDS)
        play.wait_for_end(pod)
        ended = time.monotonic()
        pod = play.next_pod()
        waits.append(time.monotonic() - ended)
    state = play.state()
    play.remove()
    return waits, state, play.at_once()


def rejected(stage: Stage, limit: int) -> tuple[JobState, int]:
    """Play a Job whose nodes reject its pods, with another ``limit``; return its state and number of pods."""
    play = stage.of_job("rejected")
    play.start(PodLife(is_rejected=True), backoffLimit=limit)
    pods = [play.next_pod("Failed") for _ in range(limit + 1)]
    state = play.wait_until_ended()
    play.remove()
    return state, len(pods)


def node_lost(stage: Stage, name: str, *, while_stopping: bool) -> tuple[JobState, int]:
    """Take a pod's node without a drain, or in one; return the Job's state then, and its pods at once."""
    play = stage.of_job(name)
    play.start(DEAF)
    pod = play.next_pod()
    if while_stopping:
        play.drain(pod)
        time.sleep(1)
    play.lose_node(pod)
    play.next_pod()
    state = play.state()
    play.remove()
    return state, play.at_once()


def replaced(stage: Stage) -> tuple[int, float, int]:
    """Replace a Job by that of another revision, as the engine does, while its pod stops."""
    play = stage.of_job("replaced")
    life = PodLife(stops=REPLACED_STOPS_SECONDS, stop_code=STOPPED_EXIT_CODE)
    play.start(life)
    play.next_pod()
    began, code = time.monotonic(), 0
    play.delete_as_the_engine()

    def is_accepted() -> bool:
        nonlocal code
        try:
            play.start(life, template=play.template_of(revision="f" * 40))
        except RefusedError as error:
            code = error.code
            return False
        return True

    wait_until(is_accepted, interval_seconds=0.3)
    seconds = time.monotonic() - began
    play.next_pod()
    play.remove()
    return code, seconds, play.at_once()


def node_of_several(stage: Stage, name: str, life: PodLife, *, peer_ends_first: bool, is_taken: bool) -> str:
    """Take one of two nodes of a run, or end its pod with a fault; return why the run's Job failed."""
    play = stage.of_nodes(name, 2)
    play.start(life)
    first, peer = play.next_pod(), play.next_pod()
    if is_taken:
        play.drain(first, None if life is not DEAF else _SHORT_GRACE_SECONDS)
    else:
        play.end(first, 1)
    if peer_ends_first:
        time.sleep(1.5)
        play.end(peer, 1)
    state = play.wait_until_ended()
    play.remove()
    return next(item.partition(": ")[2] for item in state.conditions if item.startswith("Fail"))


def experiment_failed(stage: Stage) -> JobState:
    """End experiment 0 for good and experiment 1 well; return the Indexed Job's state."""
    play = stage.of_job("experiments", environment={}, matrix={"SEED": [1, 2]})
    play.start(PodLife())
    index = "batch.kubernetes.io/job-completion-index"
    by_index = {pod["metadata"]["labels"][index]: pod for pod in (play.next_pod(), play.next_pod())}
    play.end(by_index["0"], 127)
    play.end(by_index["1"], 0)
    wait_until(lambda: any(item.startswith("Failed:") for item in play.state().conditions))
    state = play.state()
    play.remove()
    return state
