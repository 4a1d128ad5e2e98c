"""Proxies of an HTTP service list its pods by the API of a real server, with what their group may do."""

from __future__ import annotations

import base64
import threading
import time

import pytest

from contracts.agent.config import HttpPods
from infra.kubernetes import http_workers
from tests.cluster import service_plays
from tests.cluster.client import ClusterApi
from tests.cluster.kubelet import PlayedKubelet
from tests.cluster.service_plays import NAMESPACE, ServicePlay
from tests.cluster.test_services import token_of
from tests.kubernetes.entries import HTTP_SERVICE
from tests.waiting import wait_until
from userdata.agent.proxy.pods import WATCH_SECONDS, ClusterApiError, PodDiscovery


def test_a_deleted_pod_is_not_listed_and_proxies_may_do_nothing_else(api: ClusterApi) -> None:
    objects = service_plays.service_objects(**HTTP_SERVICE)
    for item in objects:
        if item["kind"] in ("Namespace", "ServiceAccount", "Role", "RoleBinding"):
            if item["kind"] == "RoleBinding":
                # The access entry of EKS gives the role the group; here a pod's account has another one.
                assert item["subjects"][0]["name"] == http_workers.proxies_group("dev", "ocr")
                item["subjects"][0]["name"] = f"system:serviceaccounts:{NAMESPACE}"
            api.apply(item)
    with PlayedKubelet(api, NAMESPACE) as kubelet:
        play = ServicePlay(api, kubelet, "http", 2, HTTP_SERVICE)
        play.apply()
        play.scale(2)
        pods = play.pods()
        host, port = api.address
        root = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
        token = token_of(api, pods[0])
        place = HttpPods("c", f"https://{host}:{port}", base64.b64encode(root.encode()).decode(), NAMESPACE)
        discover = PodDiscovery(place, "http", lambda: token)
        names = {pod["metadata"]["name"] for pod in pods}
        wait_until(lambda: {found.name for found in discover()} == names)
        assert all(found.launched_at and found.address for found in discover())
        # The kubelet still runs it: a pod is left out from its deletion on.
        gone = pods[0]["metadata"]["name"]
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{gone}"
        api.patch(path, {"metadata": {"finalizers": ["gpu-spot/test"]}})
        deletion = threading.Timer(0.5, api.delete, [path])
        deletion.start()
        began = time.monotonic()
        wait_until(lambda: gone not in {found.name for found in discover()}, interval_seconds=0)
        assert time.monotonic() - began < WATCH_SECONDS  # the call that waits returns at once
        deletion.join()
        api.patch(path, {"metadata": {"finalizers": None}})
        play.scale(2)
        wait_until(lambda: len(discover()) == 2)
        discover._version = "1"  # too old: the API says so, and lists them
        assert len(discover()) == 2
        assert int(discover._version) > 1
        with pytest.raises(ClusterApiError, match="403"):
            PodDiscovery(
                HttpPods(place.cluster, place.endpoint, place.authority, "default"), "http", lambda: token
            )()
        with pytest.raises(ClusterApiError, match="401"):
            PodDiscovery(place, "http", lambda: "nothing")()
        play.delete()
