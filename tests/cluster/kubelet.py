"""Nodes without machines: they have leases, and their pods run, stop and end as a kubelet reports it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

from infra.kubernetes.context import GPU, Manifest
from tests.cluster.client import ClusterApi, RefusedError

LIFE: Final = "gpu-spot-test/life"
KILLED_EXIT_CODE: Final = 137
_LEASE_SECONDS: Final = 10.0
"""Between renewals of a node's lease: that of a kubelet."""
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_FINISHED: Final = ("Succeeded", "Failed")
_UNFINISHED: Final = {"fieldSelector": ",".join(f"status.phase!={phase}" for phase in _FINISHED)}
_JOB: Final = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class PodLife:
    """Seconds and exit codes of a pod's command."""

    starts: float = 0.1
    runs: float | None = None
    code: int = 0
    stops: float = 0.3
    stop_code: int = 143
    is_rejected: bool = False

    def annotation(self) -> dict[str, str]:
        return {LIFE: json.dumps(asdict(self))}


@dataclass(frozen=True)
class PlayedNode:
    """A node and what it has."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    gpus: int = 1


class PlayedKubelet:
    """The kubelets of some nodes, in a thread; ``namespace`` is that of the pods."""

    def __init__(self, api: ClusterApi, namespace: str, step_seconds: float = 0.1) -> None:
        self._api, self._namespace, self._step_seconds = api, namespace, step_seconds
        self._lock = threading.Lock()
        self._nodes: set[str] = set()
        self._reachable: set[str] = set()
        self._since: dict[tuple[str, str], float] = {}
        self._ends: dict[str, int] = {}
        self._finished: dict[str, dict[str, str]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.at_once: dict[str, int] = defaultdict(int)
        """By Job: the highest number of its pods that had a node and had not ended, at one moment."""
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)
        for name in sorted(self._nodes):
            for path in ("/api/v1/nodes", LEASES):
                with contextlib.suppress(RefusedError):
                    self._api.delete(f"{path}/{name}")

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def add(self, node: PlayedNode) -> None:
        """Register a node with the taint of GPU nodes, and its lease."""
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}
        taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
        self._api.post(
            "/api/v1/nodes", {"metadata": {"name": node.name, "labels": labels}, "spec": {"taints": [taint]}}
        )
        capacity = {"cpu": "192", "memory": "2Ti", "pods": "110", GPU: str(node.gpus)}
        self._report_node(node.name, {"capacity": capacity, "allocatable": capacity})
        lease = {"holderIdentity": node.name, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}
        self._api.post(LEASES, {"metadata": {"name": node.name}, "spec": lease})
        with self._lock:
            self._nodes.add(node.name)
            self._reachable.add(node.name)

    def end(self, pod: Manifest, code: int) -> None:
        self._ends[pod["metadata"]["uid"]] = code

    def lose(self, node: str) -> None:
        """Take a node without a word: its kubelet is silent, and its Node object is deleted."""
        with self._lock:
            self._reachable.discard(node)
        self._api.delete(f"/api/v1/nodes/{node}")

    def _run(self) -> None:
        renewed = 0.0
        while not self._stopped.wait(self._step_seconds):
            try:
                if time.monotonic() - renewed > _LEASE_SECONDS:
                    renewed = time.monotonic()
                    self._renew()
                self._step()
            except (RefusedError, OSError) as error:
                # A pod or node that is gone meanwhile, or a conflict: the next step sees it as it is.
                self.errors.append(repr(error))

    def _renew(self) -> None:
        with self._lock:
            names = sorted(self._reachable)
        for name in names:
            with contextlib.suppress(RefusedError):
                self._renew_lease(name)
                self._report_node(name, {})  # on a busy machine it may have been late

    def _renew_lease(self, name: str) -> None:
        self._api.patch(f"{LEASES}/{name}", {"spec": {"renewTime": now(micro=True)}})

    def _report_node(self, name: str, status: dict[str, Any]) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        self._api.patch(
            f"/api/v1/nodes/{name}/status", {"status": {**status, "conditions": [{**ready, **times}]}}
        )

    def _step(self) -> list[Manifest]:
        """Let the pods go on; return those that have not finished."""
        pods = self._api.items(f"/api/v1/namespaces/{self._namespace}/pods", **_UNFINISHED)
        active = Counter(
            pod["metadata"].get("labels", {}).get(_JOB, "") for pod in pods if pod["spec"].get("nodeName")
        )
        for job, count in active.items():
            self.at_once[job] = max(self.at_once[job], count)
        for pod in pods:
            if pod["spec"].get("nodeName") in self._reachable:
                with contextlib.suppress(RefusedError):
                    self._advance(pod)
        self._remove_finished()
        return pods

    def _advance(self, pod: Manifest) -> None:
        metadata, phase = pod["metadata"], pod["status"]["phase"]
        life = PodLife(**json.loads(metadata.get("annotations", {}).get(LIFE, "{}")))
        if "deletionTimestamp" in metadata:
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            if self._seconds(pod, "stopping") >= min(life.stops, grace):
                self._finish(pod, KILLED_EXIT_CODE if life.stops > grace else life.stop_code)
        elif phase == "Pending":
            if life.is_rejected:  # kubernetes, pkg/kubelet/kubelet.go, rejectPod
                status = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
                self._patch_status(pod, {**status, "message": "Pod was rejected: Allocate failed"})
            elif self._seconds(pod, "starting") >= life.starts:
                self._report_running(pod)
        elif metadata["uid"] in self._ends:
            self._finish(pod, self._ends[metadata["uid"]])
        elif life.runs is not None and self._seconds(pod, "running") >= life.runs:
            self._finish(pod, life.code)

    def _seconds(self, pod: Manifest, stage: str) -> float:
        now = time.monotonic()
        return now - self._since.setdefault((pod["metadata"]["uid"], stage), now)

    def _finish(self, pod: Manifest, code: int) -> None:
        if pod["status"]["phase"] == "Pending":
            self._report(pod, "Failed", {"waiting": {"reason": "PodInitializing"}})
            return
        reason = "Error" if code else "Completed"
        times = {"startedAt": now(), "finishedAt": now()}
        state = {"terminated": {"exitCode": code, "reason": reason, **times}}
        self._report(pod, "Failed" if code else "Succeeded", state)

    def _report_running(self, pod: Manifest) -> None:
        self._report(pod, "Running", {"running": {"startedAt": now()}})

    def _report(self, pod: Manifest, phase: str, state: dict[str, Any]) -> None:
        is_ready = phase == "Running"
        containers = [
            {
                **{"name": container["name"], "image": container["image"], "imageID": ""},
                **{"restartCount": 0, "ready": is_ready, "started": is_ready, "state": state},
            }
            for container in pod["spec"]["containers"]
        ]
        truths = {"PodReadyToStartContainers": True, "Initialized": True}
        truths |= dict.fromkeys(("ContainersReady", "Ready"), is_ready)
        conditions = [
            {"type": kind, "status": str(value), "lastTransitionTime": now()}
            for kind, value in truths.items()
        ]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
        if is_ready:
            status |= {"startTime": now(), "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}
        self._patch_status(pod, status)

    def _patch_status(self, pod: Manifest, status: Manifest) -> None:
        """Set keys of a pod's status; a finished and deleted pod goes once its Job has counted it."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        uid = {"uid": metadata["uid"]}
        patched = self._api.patch(f"{path}/status", {"metadata": uid, "status": status})
        if status["phase"] in _FINISHED and "deletionTimestamp" in patched["metadata"]:
            self._finished[path] = uid

    def _remove_finished(self) -> None:
        for path, uid in list(self._finished.items()):
            with contextlib.suppress(RefusedError):  # 404, 409: another pod of that name, or none
                self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": uid})
            del self._finished[path]


def now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
