"""Jobs on Kubernetes: their states and why they wait, by Kueue's Workloads.

Source: Kueue, ``apis/kueue/v1beta2/workload_types.go`` (conditions of a Workload).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from rich import box
from rich.table import Table
from rich.text import Text

_API: Final = "/apis/kueue.x-k8s.io/v1beta2"
_TIMEOUT_SECONDS: Final = 20
_UNREADABLE: Final = (
    *(OSError, ValueError, KeyError, http.client.HTTPException, subprocess.SubprocessError),
    *(BotoCoreError, ClientError),
)


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job on Kubernetes; ``state`` is one of pending, starting, running, recovering, done, failed, unknown.

    ``recovering``: a pod is lost; the job starts again, or its other nodes go on.
    """

    name: str
    state: str
    reason: str = ""


def cluster_jobs(names: Iterable[str], workloads: Iterable[Mapping[str, Any]]) -> list[ClusterJob]:
    """Return the states of jobs by the Workloads of their namespace, which belong to them by name."""
    by_owner: dict[str, Mapping[str, Any]] = {}
    for workload in sorted(workloads, key=lambda item: str(item["metadata"].get("creationTimestamp", ""))):
        for owner in workload["metadata"].get("ownerReferences", ()):
            by_owner[owner["name"]] = workload
    return [_job(name, by_owner.get(name)) for name in names]


def _job(name: str, workload: Mapping[str, Any] | None) -> ClusterJob:
    if workload is None:
        return ClusterJob(name, "unknown", "Kueue has no Workload for it")
    listed = workload.get("status", {}).get("conditions", ())
    conditions = {item["type"]: item for item in listed}
    reasons = {item["type"]: " ".join(str(item.get("message", "")).split()) for item in listed}
    true = {item["type"] for item in listed if item["status"] == "True"}
    if "Finished" in true:
        has_succeeded = conditions["Finished"].get("reason") == "Succeeded"
        return ClusterJob(name, "done" if has_succeeded else "failed", reasons["Finished"])
    if "Admitted" in true:
        if "PodsReady" in true:
            return ClusterJob(name, "running")
        is_recovering = conditions.get("PodsReady", {}).get("reason") == "WaitForRecovery"
        state = "recovering" if is_recovering else "starting"
        return ClusterJob(name, state, reasons.get("PodsReady") or "waits for nodes and pods")
    waits = reasons.get("QuotaReserved") or reasons.get("Evicted")
    return ClusterJob(name, "pending", waits or "Kueue has not considered it yet")


class ClusterReader:
    """Reads the Workloads of a namespace of an EKS cluster, as the caller of ``aws eks get-token``.

    Args:
        eks: the boto3 client.
        token: returns a token for the cluster's API.
    """

    def __init__(
        self, eks: Any, cluster: str, region: str, token: Callable[[str, str], str] | None = None
    ) -> None:
        self._eks = eks
        self._cluster = cluster
        self._region = region
        self._token = token or _token

    def read(self, names: Iterable[str], namespace: str) -> list[ClusterJob]:
        """Return the states of jobs. A cluster that cannot be read makes them unknown, with the reason."""
        names = [*names]
        try:
            workloads = self._get(f"{_API}/namespaces/{namespace}/workloads")["items"]
        except _UNREADABLE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return [ClusterJob(name, "unknown", f"cluster {self._cluster!r}: {reason}") for name in names]
        return cluster_jobs(names, workloads)

    def _get(self, path: str) -> Any:
        cluster = self._eks.describe_cluster(name=self._cluster)["cluster"]
        server = urlsplit(cluster["endpoint"])
        authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # EKS's authorities lack a key identifier
        connection = http.client.HTTPSConnection(
            server.hostname or "", server.port, context=tls, timeout=_TIMEOUT_SECONDS
        )
        headers = {"Authorization": f"Bearer {self._token(self._cluster, self._region)}"}
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise OSError(f"{response.status} {text[:200]}")
        return json.loads(text)


def _token(cluster: str, region: str) -> str:
    command = ["aws", "eks", "get-token", "--cluster-name", cluster, "--region", region, "--output", "json"]
    result = subprocess.run(  # noqa: S603 - no shell
        command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    if result.returncode:
        raise OSError(f"aws eks get-token: {result.stderr.strip()[:200]}")
    return str(json.loads(result.stdout)["status"]["token"])


def cluster_json(job: ClusterJob) -> dict[str, Any]:
    """Return a job as ``jobs list`` prints all; null is what Kueue does not say."""
    of_run = ("at", "since", "revision", "retries", "step", "steps")
    unknown = (*of_run, "nodes", "budget_usd", "spent_usd", "host")
    return {"job": job.name, "state": job.state, "why": job.reason, **dict.fromkeys(unknown)}


def cluster_table(jobs: Iterable[ClusterJob], cluster: str) -> Table:
    """Return a table of the jobs on a cluster."""
    table = Table(box=box.SIMPLE_HEAD, title=f"jobs on Kubernetes, {cluster}", title_justify="left")
    for column in ("job", "state", "reason"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        table.add_row(job.name, job.state, Text(job.reason))
    return table
