"""A Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler; no kubelet."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from infra.kubernetes.context import Manifest
from tests.cluster.client import ClusterApi, RefusedError
from tests.waiting import wait_until

AUDIT_LOG = "audit.log"
"""In the folder of the control plane: the requests that the rules of its audit policy select."""
AUTOSCALER_SECONDS: Final = 1
"""Between two looks of the horizontal pod autoscaler; 15 by default."""
_LOG_END_CHARACTERS = 3000
# Of EKS's, which extends cluster/gce/gci/configure-helper.sh of Kubernetes, this is the part for `batch`.
_JOBS_RULE: Final = {
    **{"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete"]},
    "resources": [{"group": "batch"}],
}
_PODS_RULE: Final = {
    **{"level": "Request", "verbs": ["update", "patch"]},
    "resources": [{"group": "", "resources": ["pods/status"]}],
}
JOBS_AUDIT: Final[Sequence[Manifest]] = (_JOBS_RULE, _PODS_RULE, {"level": "None"})
"""Rules of the audit policy: requests that change Jobs, with their responses, and reports of pods."""


class Components:
    """Processes of a control plane; each is ended by its id, and one that ends early is an error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str | Path], variables: Mapping[str, str] | None = None
    ) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(part) for part in command],
                **{"stdout": log, "stderr": log, "cwd": self._folder},
                env={**os.environ, **(variables or {})},
            )

    def check(self) -> bool:
        """Return True. Raises ``RuntimeError`` with the end of its log if a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = (self._folder / f"{name}.log").read_text("utf-8", "replace")
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{log[-_LOG_END_CHARACTERS:]}")
        return True

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in reversed(self._processes.values()):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def control_plane(program: Path, folder: Path, audit: Sequence[Manifest] = JOBS_AUDIT) -> Iterator[Path]:
    """Run a control plane with ``program`` (``control_plane/build``) in ``folder``; yield its kubeconfig."""
    etcd = shutil.which("etcd")
    if etcd is None:
        raise RuntimeError("tests/cluster needs etcd on PATH: sudo apt-get install etcd-server")
    components = Components(folder)
    try:
        yield _started(components, program, etcd, folder, audit)
        components.check()
    finally:
        components.stop()


def _started(
    components: Components, program: Path, etcd: str, folder: Path, audit: Sequence[Manifest]
) -> Path:
    client_port, peer_port, port = free_ports(3)
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    key, tokens, token = folder / "accounts.key", folder / "tokens.csv", secrets.token_hex(16)
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.touch(0o600)
    tokens.write_text(f'{token},admin,admin,"system:masters"\n')
    components.start(
        "etcd",
        [
            *(etcd, "--data-dir", folder / "etcd", "--name", "test", "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}"),
        ],
    )
    certificates = folder / "certificates"
    policy = folder / "audit-policy.yaml"
    audit_policy = {
        **{"apiVersion": "audit.k8s.io/v1", "kind": "Policy"},
        **{"omitStages": ["RequestReceived"], "rules": audit},
    }
    policy.write_text(json.dumps(audit_policy), "utf-8")  # JSON is YAML
    components.start(
        "apiserver",
        [
            *(program, "apiserver", f"--etcd-servers={client}", f"--cert-dir={certificates}"),
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"),
            *(f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC"),
            *(f"--audit-policy-file={policy}", f"--audit-log-path={folder / AUDIT_LOG}"),
            *("--service-cluster-ip-range=10.255.0.0/24", "--endpoint-reconciler-type=none"),
            *("--service-account-issuer=https://kubernetes.default.svc",),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
        ],
    )
    authority = certificates / "apiserver.crt"
    kubeconfig = _kubeconfig(folder / "kubeconfig", port, authority, token)
    # The key is written after the certificate.
    wait_until(lambda: components.check() and (certificates / "apiserver.key").exists())
    with contextlib.closing(ClusterApi(kubeconfig)) as api:
        wait_until(lambda: components.check() and _is_ready(api), interval_seconds=0.2)
        _start_controllers(components, program, folder, kubeconfig, authority, key)
        wait_until(lambda: components.check() and _has_accounts(api), interval_seconds=0.2)
    return kubeconfig


def _start_controllers(
    components: Components, program: Path, folder: Path, kubeconfig: Path, authority: Path, key: Path
) -> None:
    of_manager = [f"--service-account-private-key-file={key}", f"--root-ca-file={authority}"]
    of_manager.append(f"--horizontal-pod-autoscaler-sync-period={AUTOSCALER_SECONDS}s")
    for name, port in zip(("controller-manager", "scheduler"), free_ports(2), strict=True):
        components.start(
            name,
            [
                *(program, name, f"--kubeconfig={kubeconfig}", "--leader-elect=false"),
                *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
                *("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder / name}"),
                *(of_manager if name == "controller-manager" else ()),
            ],
        )


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]


def _kubeconfig(path: Path, port: int, authority: Path, token: str) -> Path:
    """Write a kubeconfig as JSON, which is YAML."""
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    config = {
        **{"apiVersion": "v1", "kind": "Config", "current-context": "test"},
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
    }
    path.touch(0o600)
    path.write_text(json.dumps(config))
    return path


def _is_ready(api: ClusterApi) -> bool:
    try:
        return bool(api.get("/readyz") == "ok")
    except (RefusedError, OSError):
        return False


def _has_accounts(api: ClusterApi) -> bool:
    """Return whether the controller manager works: it creates each namespace's service account."""
    try:
        return bool(api.get("/api/v1/namespaces/default/serviceaccounts/default"))
    except RefusedError:
        return False
