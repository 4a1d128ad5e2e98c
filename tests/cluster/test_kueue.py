"""Kueue itself on the stack's jobs: a quota, a drought, and the pauses in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from infra.components.cluster import job_failures
from infra.kubernetes.context import Manifest
from infra.schema.cluster.created_cluster import CreatedCluster
from tests.cluster import clusters, controllers, plays
from tests.cluster.client import ClusterApi
from tests.cluster.kubelet import PlayedKubelet, PlayedNode, PodLife
from tests.cluster.local import AUDIT_LOG
from tests.cluster.test_jobs import matches
from tests.kubernetes.entries import CLUSTER, of_kind, rendered, settings
from tests.kubernetes.test_own_cluster import CREATED
from tests.waiting import wait_until

_ASKS_SECONDS: Final = 3
_PAUSE_SECONDS: Final = 1
_ROUNDS: Final = 6
_KINDS: Final = frozenset(
    {
        *("Namespace", "ServiceAccount", "PersistentVolume", "PersistentVolumeClaim"),
        *("ResourceFlavor", "ClusterQueue", "LocalQueue"),
    }
)
_DAY_ROUNDS: Final = 46
"""Of half an hour of asking and a minute's pause: 24 hours."""


@contextlib.contextmanager
def cluster(folder: Path, starts: int) -> Iterator[ClusterApi]:
    """Run a cluster with Kueue, on a clock on which half an hour takes three seconds."""
    controllers.built("kueue")
    made = settings(kubernetes=CREATED).kubernetes
    assert made is not None
    pauses = dict.fromkeys(("backoffBaseSeconds", "backoffMaxSeconds"), _PAUSE_SECONDS)
    wait = {"timeout": f"{_ASKS_SECONDS}s", "requeuingStrategy": {**pauses, "backoffLimitCount": starts}}
    with clusters.cluster(folder) as client, controllers.kueue(client, made, **wait):
        yield client


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterApi]:
    with cluster(tmp_path_factory.mktemp("kueue"), 336) as client:
        yield client


class QueuedJob:
    """A job of the stack under a name of its own, in Kueue's queue for ``gpus``; ``life`` is its pods'."""

    def __init__(self, api: ClusterApi, name: str, life: PodLife, gpus: int = 1, **entry: Any) -> None:
        objects = rendered(
            job={"datasets": [], **entry},
            kubernetes={**CLUSTER, "namespace": plays.NAMESPACE, "quotaGpus": gpus},
        )
        for item in objects:
            if item["kind"] in _KINDS:
                api.apply(item)
        self._api, job = api, of_kind(objects, "Job")
        job["metadata"]["name"] = name
        template = job["spec"]["template"]
        template["spec"]["nodeSelector"] = {plays.LABEL: name}
        template["metadata"]["annotations"] = life.annotation()
        self.selector: dict[str, str] = template["spec"]["nodeSelector"]
        self.path = f"/apis/batch/v1/namespaces/{plays.NAMESPACE}/jobs/{name}"
        self._pods = f"/api/v1/namespaces/{plays.NAMESPACE}/pods"
        self._selected = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
        api.apply(job)

    def pods(self, phase: str) -> dict[str, Manifest]:
        """Return the pods in a phase by their ids."""
        pods = self._api.items(self._pods, **self._selected)
        return {pod["metadata"]["uid"]: pod for pod in pods if pod["status"]["phase"] == phase}

    def job(self) -> Manifest:
        found: Manifest = self._api.get(self.path)
        return found

    def asks(self) -> bool:
        """Return whether its pods are there, so that Karpenter would look for nodes."""
        return not self.job()["spec"].get("suspend", False)

    def is_complete(self) -> bool:
        conditions = self.job()["status"].get("conditions") or ()
        return any(item["type"] == "Complete" and item["status"] == "True" for item in conditions)

    def remove(self) -> None:
        self._api.delete(self.path, {"propagationPolicy": "Background"})


def spells(job: QueuedJob, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each asking and each pause of a job in a drought."""
    changes: list[float] = []
    state = True
    wait_until(job.asks, interval_seconds=0.05)
    while len(changes) < 2 * rounds + 1:
        if job.asks() != state:
            state = not state
            changes.append(time.monotonic())
        time.sleep(0.05)
    lengths = [after - before for before, after in itertools.pairwise(changes)]
    return lengths[1::2], lengths[::2]  # it begins with the first pause


def asked_share(asked: list[float], paused: list[float], create: CreatedCluster) -> float:
    """Return the share of a drought in which a job asks, on the real clock, with Kueue's own delays."""
    delays = sum(paused) / len(paused) - _PAUSE_SECONDS
    asks, pause = create.job_start_minutes * 60, create.job_pause_seconds + max(0.0, delays)
    return asks / (asks + pause)


def drought(api: ClusterApi, rounds: int) -> tuple[list[float], list[float], bool]:
    job = QueuedJob(api, f"drought-{rounds}", PodLife(runs=0.5))
    asked, paused = spells(job, rounds)
    with PlayedKubelet(api, plays.NAMESPACE) as kubelet:
        kubelet.add(PlayedNode("after-the-drought", job.selector))
        wait_until(job.is_complete, interval_seconds=0.2)
    job.remove()
    return asked, paused, True


def check(found: tuple[list[float], list[float], bool]) -> float:
    asked, paused, _ = found
    create = settings(kubernetes=CREATED).kubernetes
    assert create.create is not None
    # The last pauses are as long as the first; Kueue's own would double. A busy machine is late in all.
    half = len(paused) // 2
    assert statistics.median(paused[half:]) < 3 * statistics.median(paused[:half])
    return asked_share(asked, paused, create.create)


def test_a_job_goes_on_asking_in_a_drought_and_runs_when_it_ends(api: ClusterApi) -> None:
    assert check(drought(api, _ROUNDS)) >= 0.95
    # The metric filter of the alarm `<job>-waits`, on the API server's own events.
    log = (api.folder / AUDIT_LOG).read_text("utf-8")
    events = [event for line in log.splitlines() if (event := json.loads(line))["objectRef"].get("name")]
    waits, other = (
        job_failures.patterns(plays.NAMESPACE, name)["waits"] for name in (f"drought-{_ROUNDS}", "x")
    )
    assert sum(matches(waits, event) for event in events) >= _ROUNDS
    assert not any(matches(other, event) for event in events)


@pytest.mark.soak
def test_jobs_outlast_a_day_of_drought(api: ClusterApi, record_property: Any) -> None:
    share = check(drought(api, _DAY_ROUNDS))
    record_property("cluster", f"drought of 24 hours: {share:.1%} of it asked for capacity")
    assert share >= 0.95


def test_a_second_job_waits_for_the_quota(api: ClusterApi) -> None:
    first, second = (QueuedJob(api, name, PodLife(runs=2)) for name in ("first", "second"))
    with PlayedKubelet(api, plays.NAMESPACE) as kubelet:
        for job, name in ((first, "first"), (second, "second")):
            kubelet.add(PlayedNode(f"quota-{name}", job.selector))
        both = []

        def are_complete() -> bool:
            both.append(first.asks() and second.asks() and not (first.is_complete() or second.is_complete()))
            return first.is_complete() and second.is_complete()

        wait_until(are_complete, interval_seconds=0.1)
    assert not any(both)
    for job in (first, second):
        job.remove()


def test_a_run_that_lacks_a_node_for_long_keeps_its_survivors(api: ClusterApi) -> None:
    job = QueuedJob(api, "survives", PodLife(), 2, nodes={"min": 1, "max": 2})
    with PlayedKubelet(api, plays.NAMESPACE) as kubelet:
        for number in (1, 2):
            kubelet.add(PlayedNode(f"survives-{number}", job.selector))
        wait_until(lambda: len(job.pods("Running")) == 2, interval_seconds=0.1)
        taken, kept = job.pods("Running").values()
        kubelet.lose(taken["spec"]["nodeName"])
        wait_until(lambda: bool(job.pods("Pending")), interval_seconds=0.2)
        end = time.monotonic() + 4 * _ASKS_SECONDS
        while time.monotonic() < end:
            assert job.asks()
            assert kept["metadata"]["uid"] in job.pods("Running")
            time.sleep(0.3)
    job.remove()


def test_a_job_that_never_starts_stays_suspended_after_its_last_start(tmp_path: Path) -> None:
    """No node fits it, or its volume is never mounted: Kueue cannot tell. It asks twice here."""
    with cluster(tmp_path, 2) as api:
        job = QueuedJob(api, "never", PodLife())
        workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{plays.NAMESPACE}/workloads"

        def is_given_up() -> bool:
            return any(not item["spec"].get("active", True) for item in api.items(workloads))

        wait_until(is_given_up, interval_seconds=0.3)
        wait_until(lambda: not job.asks() and not job.pods("Pending"), interval_seconds=0.3)
        time.sleep(3 * _PAUSE_SECONDS)
        assert not job.asks()
