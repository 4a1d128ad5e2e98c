"""The kubelets of a thousand nodes in one process: one watch of their pods, and each node's own reports."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from functools import partial
from typing import Any, Final

from infra.kubernetes.context import Manifest
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.kubelet import PlayedKubelet

LEASE_SECONDS: Final = 10.0
"""Between renewals of a node's lease (kubelet: a quarter of ``nodeLeaseDurationSeconds``, 40)."""
STATUS_EACH: Final = 30
"""Renewals for each report of a node's status (kubelet: ``nodeStatusReportFrequency``, 5 minutes)."""
_RENEWERS: Final = 8
"""Threads that renew leases: one waits for the API server for too long. A late lease makes pods unready."""
_LATE_SECONDS: Final = 20.0
"""Since its last renewal: then a node reports its status at once, as it may count as unreachable."""
_FINISHED: Final = ("Succeeded", "Failed")


class ManyNodes(PlayedKubelet):
    """Played kubelets that learn of their pods by a watch, and report as often as real ones do.

    A pod gets a status when its node has it, another when it runs, and a last one when it has ended; then
    its object is deleted. Real kubelets also watch their node, and each Secret and ConfigMap of their pods.
    """

    def __init__(self, api: ClusterApi, namespace: str) -> None:
        super().__init__(api, namespace, step_seconds=0.05)
        self._changed: dict[str, Manifest] = {}
        self._announced: set[str] = set()
        self.running: set[str] = set()
        """Uids of the pods that run and are not to end."""
        renewals = [partial(self._renew_share, number) for number in range(_RENEWERS)]
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._watch, *renewals)]

    def __enter__(self) -> ManyNodes:
        for thread in self._threads:
            thread.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        # The cluster goes with its nodes.
        self._stopped.set()
        self._thread.join(60)

    def _renew(self) -> None:
        """Nothing: ``_renew_share`` does it in threads of its own, at even intervals."""

    def _renew_share(self, share: int) -> None:
        renewed: dict[str, float] = {}
        for passes in itertools.count():
            began = time.monotonic()
            with self._lock:
                names = sorted(self._reachable)[share::_RENEWERS]
            for number, name in enumerate(names):
                delay = began + number * LEASE_SECONDS / len(names) - time.monotonic()
                if self._stopped.wait(max(0.0, delay)):
                    return
                with contextlib.suppress(RefusedError, OSError):
                    self._renew_lease(name)
                    now = time.monotonic()
                    if (passes + number) % STATUS_EACH == 0 or now - renewed.get(name, now) > _LATE_SECONDS:
                        self._report_node(name, {})
                    renewed[name] = now
            if self._stopped.wait(max(0.0, began + LEASE_SECONDS - time.monotonic())):
                return

    def _watch(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        while not self._stopped.is_set():
            try:
                listed = self._api.get(path)
                for pod in listed["items"]:
                    self._see(pod)
                version = listed["metadata"]["resourceVersion"]
                for event in self._api.watch(path, resourceVersion=version):
                    if event["type"] == "ERROR":
                        break
                    self._see(event["object"], is_gone=event["type"] == "DELETED")
            except (RefusedError, OSError, ValueError) as error:
                self.errors.append(repr(error))

    def _see(self, pod: Manifest, *, is_gone: bool = False) -> None:
        uid, phase = pod["metadata"]["uid"], pod["status"]["phase"]
        is_ending = "deletionTimestamp" in pod["metadata"]
        if phase == "Running" and not is_ending and not is_gone:
            self.running.add(uid)
        else:
            self.running.discard(uid)
        needs_work = "nodeName" in pod["spec"] and not is_gone and phase not in _FINISHED
        if needs_work and (is_ending or phase == "Pending" or not _is_ready(pod)):
            self._changed[uid] = pod
        else:
            self._changed.pop(uid, None)

    def _step(self) -> list[Manifest]:
        for uid, pod in list(self._changed.items()):
            if pod["spec"]["nodeName"] in self._reachable:
                with contextlib.suppress(RefusedError):
                    if pod["status"]["phase"] == "Pending" and uid not in self._announced:
                        self._announced.add(uid)
                        self._report(pod, "Pending", {"waiting": {"reason": "PodInitializing"}})
                    elif pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]:
                        self._report_running(pod)  # its node was late, so its pods became unready
                    else:
                        self._advance(pod)
        self._remove_finished()
        return []

    def _patch_status(self, pod: Manifest, status: dict[str, Any]) -> None:
        # What it is next the watch says.
        self._changed.pop(pod["metadata"]["uid"], None)
        super()._patch_status(pod, status)


def _is_ready(pod: Manifest) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"]["conditions"])
