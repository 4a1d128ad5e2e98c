"""Services of entries on a cluster's own Deployment and ReplicaSet controllers, while their workers work."""

from __future__ import annotations

import copy
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.registry.queue_state import QueueState
from infra.kubernetes.context import Manifest
from lambdas.core.scaling.queue_source import workers_for_queue
from spot_work.pod import DeletionCost
from tests.cluster.client import ClusterApi
from tests.cluster.kubelet import PlayedKubelet, PlayedNode, PodLife
from tests.kubernetes.entries import CLUSTER, SERVICE, of_kind, rendered
from tests.waiting import wait_until

NAMESPACE: Final = "service-plays"
GPUS: Final = 10
"""Of a service in ``several_scale_downs``."""
AT_ONCE: Final = 5
_NAME: Final = "app.kubernetes.io/name"
_LIFE: Final = PodLife(starts=0.05, stops=0.05)
QUEUED_PER_WORKER: Final = 5
SETTLED_SECONDS: Final = 130.0
"""After which a worker has set the cost of its pod's deletion."""


@dataclass
class ScaleDowns:
    """What scale-downs did to workers."""

    events: int = 0
    deleted: int = 0
    in_work: int = 0
    cut_short: int = 0

    def __add__(self, other: ScaleDowns) -> ScaleDowns:
        return ScaleDowns(*(value + vars(other)[key] for key, value in vars(self).items()))


@dataclass
class PlayedWorker:
    """A worker: the simulated seconds that its request still takes; 0 without one."""

    path: str
    cost: DeletionCost
    grace: float
    request_seconds: float = 0.0


@dataclass
class ServicePlay:
    """The Deployment of a rendered service, under a name of its own, with a node of its own."""

    api: ClusterApi
    kubelet: PlayedKubelet
    name: str
    gpus: int
    service: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        deployment = copy.deepcopy(of_kind(service_objects(**self.service), "Deployment"))
        spec, metadata = deployment["spec"], deployment["metadata"]
        metadata["name"] = self.name
        spec["selector"]["matchLabels"][_NAME] = self.name
        template = spec["template"]
        template["metadata"]["labels"][_NAME] = self.name
        template["metadata"]["annotations"] = _LIFE.annotation()
        template["spec"]["nodeSelector"] = {"gpu-spot-test/play": self.name}
        self.deployment = deployment
        self.workers: dict[str, PlayedWorker] = {}
        self.kubelet.add(PlayedNode(self.name, template["spec"]["nodeSelector"], self.gpus))

    @property
    def _path(self) -> str:
        return f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{self.name}"

    def apply(self, **container: Any) -> None:
        """Apply the Deployment, with changed keys of its container."""
        deployment = copy.deepcopy(self.deployment)
        deployment["spec"]["template"]["spec"]["containers"][0] |= container
        self.api.apply(deployment)

    def status(self) -> Manifest:
        deployment: Manifest = self.api.get(self._path)
        seen = deployment["status"].get("observedGeneration", 0)
        return deployment["status"] if seen >= deployment["metadata"]["generation"] else {}

    def delete(self) -> None:
        self.api.delete(self._path, {"propagationPolicy": "Background"})

    def pods(self) -> list[Manifest]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        return self.api.items(path, labelSelector=f"{_NAME}={self.name}")

    def scale(self, replicas: int) -> None:
        """Set the number of workers, and wait until as many run and no other is there."""
        self.api.patch(self._path, {"spec": {"replicas": replicas}})
        self.await_workers(replicas)

    def await_workers(self, replicas: int) -> None:
        """Wait until so many workers run and no other is there."""

        def has_settled() -> bool:
            assert self.kubelet.is_alive, self.kubelet.errors[-3:]
            pods = self.pods()
            return len(pods) == replicas and all(
                pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
                for pod in pods
            )

        wait_until(has_settled, interval_seconds=0.1)
        pods = {pod["metadata"]["uid"]: pod for pod in self.pods()}
        self.workers = {uid: self.workers.get(uid) or self._worker(pod) for uid, pod in sorted(pods.items())}

    def _worker(self, pod: Manifest) -> PlayedWorker:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"

        def annotate(key: str, value: str) -> None:
            self.api.patch(path, {"metadata": {"annotations": {key: value}}})

        cost = DeletionCost(annotate, lambda: self.now)
        return PlayedWorker(path, cost, pod["spec"]["terminationGracePeriodSeconds"])

    def work(self, worker: PlayedWorker, seconds: float) -> None:
        worker.request_seconds = seconds
        worker.cost.set_working(bool(seconds))

    def ended(self, before: dict[str, PlayedWorker], grace: float | None = None) -> ScaleDowns:
        """Count what a scale-down did to workers that were there before; ``grace``: other than the pod's."""
        gone = [worker for uid, worker in before.items() if uid not in self.workers]
        return ScaleDowns(
            1,
            len(gone),
            sum(worker.request_seconds > 0 for worker in gone),
            sum(worker.request_seconds > (grace or worker.grace) for worker in gone),
        )

    def wait(self, seconds: float) -> None:
        """Let seconds pass for the workers' reports, without waiting."""
        self.now += seconds
        for worker in self.workers.values():
            worker.cost.step()


def workers_for(ready: int, in_flight: int, consumers: int) -> int:
    """Return the number of workers for a queue's messages, as the queue watcher computes it."""
    state = QueueState(0.0, ready, in_flight, 0.0, 0.0, 0.0, consumers)
    return workers_for_queue(state, QUEUED_PER_WORKER)


def service_objects(**service: Any) -> list[Manifest]:
    """Render the objects of a service; no volume of its pods has to be provisioned."""
    changes = {"datasets": [], "reportsReadiness": False, **service}
    return rendered(service=changes, kubernetes={**CLUSTER, "namespace": NAMESPACE})


def scale_downs(play: ServicePlay, rounds: int, seed: int, *, by_length: bool = False) -> ScaleDowns:
    """Scale a service up and down while its workers have requests of up to half an hour."""
    draw, result = random.Random(seed), ScaleDowns()
    play.apply()
    for _ in range(rounds):
        play.scale(play.gpus)
        workers = [*play.workers.values()]
        draw.shuffle(workers)
        count = draw.randrange(1, len(workers) - 2)
        for number, worker in enumerate(workers):
            play.work(worker, draw.uniform(60, 1700) if number < count else 0)
        if not by_length:
            play.wait(SETTLED_SECONDS)
        play.work(workers[count], draw.uniform(60, 1700))
        before = play.workers
        play.scale(1 if by_length else workers_for(0, count, len(workers)))
        result += play.ended(before, 110 if by_length else None)
    play.delete()
    return result


def prepare(api: ClusterApi) -> None:
    kinds = ("Namespace", "ServiceAccount", "Role", "RoleBinding")
    for item in service_objects():
        if item["kind"] in kinds or item["kind"].startswith("ValidatingAdmissionPolicy"):
            api.apply(item)


def several_scale_downs(api: ClusterApi, kubelet: PlayedKubelet, events: int) -> ScaleDowns:
    """Scale services down so often in all, ``AT_ONCE`` of them at the same time."""
    plays = [ServicePlay(api, kubelet, f"down-{events}-{number}", GPUS) for number in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(scale_downs, plays, [events // AT_ONCE] * AT_ONCE, range(AT_ONCE))
        return sum(results, ScaleDowns())


def scaled_down(api: ClusterApi, events: int) -> ScaleDowns:
    """Scale services down so often on nodes of their own."""
    prepare(api)
    with PlayedKubelet(api, NAMESPACE) as kubelet:
        return several_scale_downs(api, kubelet, events)


def rolled_out(play: ServicePlay) -> int:
    """Replace the image of a service that has all GPUs; return the fewest workers ready on the way."""
    play.apply()

    def has(**counts: int) -> bool:
        status = play.status()
        return all(status.get(key) == value for key, value in counts.items())

    replicas: int = play.deployment["spec"]["replicas"]
    wait_until(lambda: has(readyReplicas=replicas), interval_seconds=0.1)
    image: str = SERVICE["image"]
    play.apply(image=image[:-1] + "3")
    fewest = replicas

    def is_done() -> bool:
        nonlocal fewest
        fewest = min(fewest, play.status().get("readyReplicas", 0) or fewest)
        return has(updatedReplicas=replicas, readyReplicas=replicas, replicas=replicas)

    wait_until(is_done, interval_seconds=0.1)
    play.delete()
    return fewest
