"""What the Deployment and ReplicaSet controllers of Kubernetes do to workers that have requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from infra.kubernetes import deletion_cost
from infra.kubernetes.context import ClusterContext, Manifest
from infra.kubernetes.render import manifests
from spot_work.pod import PodApi
from tests.cluster import service_plays
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.conftest import COUNTS_PROPERTY
from tests.cluster.kubelet import PlayedKubelet
from tests.cluster.service_plays import NAMESPACE, ServicePlay
from tests.kubernetes.entries import SERVICE, context, settings
from tests.waiting import wait_until

_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture(scope="module")
def kubelet(api: ClusterApi) -> Iterator[PlayedKubelet]:
    service_plays.prepare(api)
    with PlayedKubelet(api, NAMESPACE) as played:
        yield played


@pytest.mark.parametrize("events", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_no_request_is_cut_short_by_a_scale_down(
    api: ClusterApi, kubelet: PlayedKubelet, record_property: Callable[[str, object], None], events: int
) -> None:
    total = service_plays.several_scale_downs(api, kubelet, events)
    record_property(COUNTS_PROPERTY, f"scale-downs: {total}")
    assert (total.events, total.cut_short) == (events, 0)
    # Only those whose request had just begun: of these the ReplicaSet cannot know.
    assert total.in_work <= total.events
    assert total.deleted > total.events


def test_the_play_sees_requests_that_are_cut_short(api: ClusterApi, kubelet: PlayedKubelet) -> None:
    """By ready messages only all workers but one end, whatever they do."""
    play = ServicePlay(api, kubelet, "by-length", service_plays.GPUS)
    total = service_plays.scale_downs(play, 2, 1, by_length=True)
    assert total.cut_short >= total.events


@pytest.mark.parametrize(
    "capacity",
    [
        {"fallback": {"enabled": False}, "target": 3, "max": 8},
        {"spotPercentage": 0, "fallback": {"enabled": False}, "target": 3, "max": 3},
    ],
)
def test_a_roll_out_goes_on_where_no_gpu_is_free(
    api: ClusterApi, kubelet: PlayedKubelet, capacity: dict[str, Any]
) -> None:
    service = {"scaling": None, "capacity": {**SERVICE["capacity"], **capacity}}
    play = ServicePlay(api, kubelet, f"full-{capacity['max']}", 3, service)
    assert service_plays.rolled_out(play) == 2


@pytest.fixture
def worker(api: ClusterApi, kubelet: PlayedKubelet) -> Iterator[list[Manifest]]:
    """Return two pods of a service."""
    play = ServicePlay(api, kubelet, "own-pod", 2)
    play.apply()
    play.scale(2)
    yield play.pods()
    play.delete()


def token_of(api: ClusterApi, pod: Manifest) -> str:
    """Return the token that the kubelet mounts into a pod."""
    bound = {"kind": "Pod", "apiVersion": "v1", **{key: pod["metadata"][key] for key in ("name", "uid")}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{pod['spec']['serviceAccountName']}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    token: str = api.post(path, {**request, "spec": {"boundObjectRef": bound}})["status"]["token"]
    return token


def test_a_worker_may_set_the_cost_of_its_own_pod_and_nothing_else(
    api: ClusterApi, worker: list[Manifest], tmp_path: Path
) -> None:
    first, second = worker
    name, other = (pod["metadata"]["name"] for pod in worker)
    authority = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    files = {"token": token_of(api, first), "ca.crt": authority, "namespace": NAMESPACE}
    for key, text in files.items():
        (tmp_path / key).write_text(text)
    mine, theirs = PodApi(name, api.address, tmp_path), PodApi(other, api.address, tmp_path)

    def refuses(pod: PodApi, key: str) -> bool:
        try:
            pod.annotate(key, "5")
        except ConnectionError as error:
            return re.match("4(22|03) ", str(error)) is not None
        return False

    # The API server reads its policies anew within seconds.
    wait_until(lambda: refuses(theirs, deletion_cost.ANNOTATION), interval_seconds=0.2)
    wait_until(lambda: refuses(mine, "other"), interval_seconds=0.2)
    mine.annotate(deletion_cost.ANNOTATION, "1")
    annotations = api.get(f"{_PODS}/{name}")["metadata"]["annotations"]
    assert annotations[deletion_cost.ANNOTATION] == "1"
    as_worker = ClusterApi(kubeconfig(api, tmp_path, authority))
    for change in (
        {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"annotations": {"gpu-spot-test/life": None}}},
    ):
        with pytest.raises(RefusedError, match=r"422|403"):
            as_worker.patch(f"{_PODS}/{name}", change)
    with pytest.raises(RefusedError, match="403"):
        as_worker.delete(f"{_PODS}/{other}")
    as_worker.close()
    assert second["metadata"]["name"] == other


def kubeconfig(api: ClusterApi, folder: Path, authority: str) -> Path:
    (folder / "authority").write_text(authority)
    host, port = api.address
    cluster = {"server": f"https://{host}:{port}", "certificate-authority": "authority"}
    config = {
        **{"apiVersion": "v1", "kind": "Config", "current-context": "worker"},
        "clusters": [{"name": "worker", "cluster": cluster}],
        "users": [{"name": "worker", "user": {"token": (folder / "token").read_text()}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "worker"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def objects(stack: str, prefix: str) -> list[Manifest]:
    """Render a stack whose entries' names begin with ``prefix``."""
    matrix = {"environment": {}, "matrix": {"SEED": [1, 2]}}
    changed = settings(job={"name": f"{prefix}resnet", **matrix}, service={"name": f"{prefix}ocr"})
    return manifests(changed, ClusterContext(**{**vars(context(changed)), "stack": stack}))


def written(api: ClusterApi, item: Manifest) -> Manifest:
    """Return which object it is, its labels, and the number of changes of its spec."""
    metadata = api.get(api.path(item))["metadata"]
    assert "deletionTimestamp" not in metadata, metadata["name"]
    return {key: metadata.get(key) for key in ("uid", "labels", "generation")}


@pytest.mark.parametrize("first_goes", [True, False])
def test_a_stack_goes_without_the_others_objects(api: ClusterApi, *, first_goes: bool) -> None:
    number = int(first_goes)
    # Stack and entry read the same in a row.
    stacks = [objects(f"two{number}", "eu-"), objects(f"two{number}-eu", "")]
    for items in stacks:
        for item in items:
            api.apply(item)
    going, staying = stacks if first_goes else reversed(stacks)
    before = [written(api, item) for item in staying]
    for item in reversed(going):
        api.delete(api.path(item), {"propagationPolicy": "Background"})
    [namespace] = [item for item in going if item["kind"] == "Namespace"]
    wait_until(lambda: api.get(api.path(namespace))["status"]["phase"] == "Terminating", interval_seconds=0.2)
    for item in staying:  # the other's next update
        api.apply(item)
    assert [written(api, item) for item in staying] == before
