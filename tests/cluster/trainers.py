"""Nodes whose pods are processes of this machine: a rendered Job's commands under a played kubelet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.kubernetes.context import LABEL_GROUP, Manifest
from tests.cluster.client import ClusterApi
from tests.cluster.kubelet import KILLED_EXIT_CODE, PlayedKubelet
from tests.kubernetes.local_pods import CHECKOUT, WORK, LocalPod

LEASE_SECONDS: Final = 30
"""The lease of these pods; that of a rendered Job takes two minutes. A busy machine renews in half of it."""
_GIT: Final = """#!/bin/sh
case "$*" in *fetch*) ;; *) exit 0 ;; esac
test ! -e "$OUTAGE" || { echo "fatal: unable to access: Could not resolve host: example.com" >&2; exit 128; }
"""


class TrainerKubelet(PlayedKubelet):
    """The kubelets of nodes with real containers' commands, in ``folder``."""

    def __init__(
        self,
        api: ClusterApi,
        namespace: str,
        folder: Path,
        step_seconds: float = 0.1,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """``variables``: of all containers, beside those of the pod."""
        super().__init__(api, namespace, step_seconds)
        self.folder, self.checkpoints = folder, folder / "efs"
        programs = folder / "programs"
        for path in (self.checkpoints, programs):
            path.mkdir()
        (programs / "git").write_text(_GIT, "utf-8")
        (programs / "git").chmod(0o755)
        more = variables or {}
        self._variables = {
            **more,
            "PATH": f"{programs}:{more.get('PATH', os.environ['PATH'])}",
            "GPU_SPOT_LEASE_SECONDS": str(LEASE_SECONDS),
            "GPU_SPOT_OUTAGE_SECONDS": "4",
            "GPU_SPOT_OUTAGE_DELAY": "1",
        }
        self.containers: dict[str, LocalPod] = {}
        """By the pod's uid."""
        self._nodes_of: dict[str, str] = {}
        self._checks_out: set[str] = set()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for container in self.containers.values():
            container.kill()

    def outage_of(self, entry: str) -> Path:
        """Return the file whose presence is an outage of an entry's git host."""
        return self.folder / f"outage-{entry}"

    def end_machine(self, pod: Manifest) -> None:
        """End a pod's machine: its processes are gone, and its node."""
        name = pod["spec"]["nodeName"]
        self.lose(name)
        for uid, node in list(self._nodes_of.items()):
            if node == name:
                self.containers[uid].kill()

    def cut_off(self, pod: Manifest) -> None:
        """Take a pod's node from the cluster's API, and let the cloud's controller remove its Node object."""
        self.lose(pod["spec"]["nodeName"])

    def _step(self) -> list[Manifest]:
        pods = super()._step()
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid, node in list(self._nodes_of.items()):
            if uid not in there and node in self._reachable:
                self.containers[uid].kill()  # a kubelet ends what the API server no longer has
        return pods

    def _advance(self, pod: Manifest) -> None:
        metadata = pod["metadata"]
        uid, is_deleted = metadata["uid"], "deletionTimestamp" in metadata
        container = self.containers.get(uid)
        if container is None:
            if is_deleted:
                self._finish(pod, KILLED_EXIT_CODE)
            else:
                self._start(pod)
        elif (code := container.code) is not None:
            self._ended(pod, container, code)
        elif is_deleted:
            if self._seconds(pod, "stopping") == 0.0:
                container.stop()
            elif self._seconds(pod, "stopping") >= (metadata.get("deletionGracePeriodSeconds") or 0):
                container.kill()

    def _start(self, pod: Manifest) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        outage = str(self.outage_of(pod["metadata"]["labels"][LABEL_GROUP]))
        variables = {**self._variables, "POD": name, "OUTAGE": outage}
        container = LocalPod(self.folder / f"{name}-{uid[:4]}", self.checkpoints, pod, variables)
        self.containers[uid], self._nodes_of[uid] = container, pod["spec"]["nodeName"]
        self._checks_out.add(uid)
        container.start(CHECKOUT)

    def _ended(self, pod: Manifest, container: LocalPod, code: int) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._checks_out:
            self._finish(pod, code)
        elif code == 0 and "deletionTimestamp" not in pod["metadata"]:
            self._checks_out.discard(uid)
            container.start(self._main_of(pod))
            self._report(pod, "Running", {"running": {}})
        else:
            self._fail_checkout(pod, code)

    def _main_of(self, pod: Manifest) -> str:
        [container] = pod["spec"]["containers"]
        name: str = container["name"]
        assert name in (WORK, "node")
        return name

    def _fail_checkout(self, pod: Manifest, code: int) -> None:
        """Report a pod whose init container failed."""
        [container] = pod["spec"]["initContainers"]
        state = {"terminated": {"exitCode": code or KILLED_EXIT_CODE, "reason": "Error"}}
        status = {
            "phase": "Failed",
            "initContainerStatuses": [
                {
                    **{"name": container["name"], "image": container["image"], "imageID": ""},
                    **{"restartCount": 0, "ready": False, "started": False, "state": state},
                }
            ],
        }
        self._patch_status(pod, status)
