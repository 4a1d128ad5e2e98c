"""Workers in the pods of services: requests come and end, and each sets the cost of its pod's deletion."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.kubernetes.context import Manifest
from spot_work.pod import DeletionCost, PodApi
from tests.cluster.client import ClusterApi, RefusedError

_THREADS: Final = 8
_WATCH_AGAIN_SECONDS: Final = 1.0
_KUBELET: Final = "kubelet"


@dataclass
class _Worker:
    cost: DeletionCost
    changes_at: float
    is_working: bool = False


def work(kubeconfig: Path, namespace: str, folder: Path, request_seconds: float, gap_seconds: float) -> None:
    """Play the workers of all running pods that have a token, until the process is ended.

    Requests and the times between them are exponential, with these means. Tokens and authorities are the
    pods' own, as the kubelet mounts them.
    """
    logging.disable(logging.WARNING)  # the bench counts refused calls by the audit log
    api = ClusterApi(kubeconfig, _KUBELET)
    authority = api.get(f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    draw = random.Random(1)
    groups: list[dict[str, _Worker]] = [{} for _ in range(_THREADS)]
    for group in groups:
        arguments = (group, request_seconds, gap_seconds, random.Random(draw.random()))
        threading.Thread(target=_step, args=arguments, daemon=True).start()
    path = f"/api/v1/namespaces/{namespace}/pods"

    def see(pod: Manifest, *, is_gone: bool = False) -> None:
        uid = pod["metadata"]["uid"]
        group = groups[hash(uid) % _THREADS]
        if is_gone or "deletionTimestamp" in pod["metadata"]:
            group.pop(uid, None)
        elif pod["status"]["phase"] == "Running" and uid not in group and _has_token(pod):
            with contextlib.suppress(RefusedError):  # it is gone
                account = _account(api, pod, folder / uid, authority)
                cost = DeletionCost(PodApi(pod["metadata"]["name"], api.address, account).annotate)
                group[uid] = _Worker(cost, time.monotonic() + draw.expovariate(1 / gap_seconds))

    while True:  # the API server ends a watch that is read too slowly
        with contextlib.suppress(RefusedError, OSError):
            listed = api.get(path)
            uids = {pod["metadata"]["uid"] for pod in listed["items"]}
            for group in groups:
                for uid in group.keys() - uids:
                    group.pop(uid)
            for pod in listed["items"]:
                see(pod)
            for event in api.watch(path, resourceVersion=listed["metadata"]["resourceVersion"]):
                if event["type"] == "ERROR":
                    break
                see(event["object"], is_gone=event["type"] == "DELETED")
        time.sleep(_WATCH_AGAIN_SECONDS)


def _step(group: dict[str, _Worker], request_seconds: float, gap_seconds: float, draw: random.Random) -> None:
    while True:
        time.sleep(1.0)
        for worker in list(group.values()):
            now = time.monotonic()
            if now >= worker.changes_at:
                worker.is_working = not worker.is_working
                mean = request_seconds if worker.is_working else gap_seconds
                worker.changes_at = now + draw.expovariate(1 / mean)
                worker.cost.set_working(worker.is_working)
            worker.cost.step()


def _has_token(pod: Manifest) -> bool:
    return any("projected" in volume for volume in pod["spec"].get("volumes", ()))


def _account(api: ClusterApi, pod: Manifest, folder: Path, authority: str) -> Path:
    """Write the files that the kubelet mounts: a token that is bound to the pod."""
    metadata, account = pod["metadata"], pod["spec"]["serviceAccountName"]
    bound = {"kind": "Pod", "apiVersion": "v1", **{key: metadata[key] for key in ("name", "uid")}}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    token = api.post(path, {**request, "spec": {"boundObjectRef": bound}})["status"]["token"]
    folder.mkdir(exist_ok=True)
    for name, text in {"token": token, "ca.crt": authority, "namespace": metadata["namespace"]}.items():
        (folder / name).write_text(text, "utf-8")
    return folder
