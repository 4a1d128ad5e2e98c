"""Controllers that act on our objects, from their own modules: processes beside a local control plane."""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.catalogue import accelerators
from infra.catalogue.instance_sizes import INSTANCE_SIZES
from infra.components.cluster.charts import kueue_configuration
from infra.kubernetes.context import GPU, Manifest
from infra.schema import Kubernetes
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.kubelet import LEASES, PlayedKubelet, now
from tests.cluster.local import Components, free_ports
from tests.waiting import wait_until

_BUILD: Final = Path(__file__).parent / "control_plane" / "controllers"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_KUEUE: Final = "kueue-system"
_WEBHOOKS: Final = "kueue-webhook-service"


def built(name: str) -> Path:
    """Return the folder of a controller's programs; where it is not built, the test is skipped by name."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpu-spot", "control-plane")
    made = subprocess.run([_BUILD, cache, name, "there"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(made.stderr.strip())
    return Path(made.stdout.strip())


def define(api: ClusterApi, folder: Path) -> None:
    """Define a controller's custom resources."""
    for file in folder.glob("*.yaml"):
        with contextlib.suppress(RefusedError):  # it is there
            api.request("POST", _DEFINITIONS, file.read_bytes(), "application/yaml")


def loopback_service(api: ClusterApi, namespace: str, name: str) -> dict[str, str]:
    """Create a namespace and a service in it that is this machine; return the reference to the service."""
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    reference = {"name": name, "namespace": namespace}
    outside = {"type": "ExternalName", "externalName": "localhost"}
    api.apply({"apiVersion": "v1", "kind": "Service", "metadata": reference, "spec": outside})
    return reference


def await_answer(request: Callable[[], object], components: Components) -> None:
    """Wait until a request is no longer refused, while components run."""

    def is_answered() -> bool:
        components.check()
        with contextlib.suppress(RefusedError):
            request()
            return True
        return False

    wait_until(is_answered, interval_seconds=0.2)


@contextlib.contextmanager
def kueue(api: ClusterApi, settings: Kubernetes, **wait: Any) -> Iterator[None]:
    """Run Kueue with the stack's configuration, in which keys of ``waitForPodsReady`` may be others.

    Its webhooks are registered as by its chart, for loopback; its certificate is a mounted Secret.
    """
    folder, work = built("kueue"), api.folder / "kueue"
    (work / "certificates").mkdir(parents=True)
    [port, health] = free_ports(2)
    configuration = json.loads(kueue_configuration(settings))
    configuration["waitForPodsReady"] |= wait
    configuration |= {
        "namespace": _KUEUE,
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(work / "certificates")},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            **{"enable": True, "webhookServiceName": _WEBHOOKS},
            "webhookSecretName": "kueue-webhook-server-cert",
        },
    }
    (work / "configuration.yaml").write_text(json.dumps(configuration))
    _register_kueue(api, folder, port)
    components = Components(work)
    command = [folder / "kueue", f"--config={work / 'configuration.yaml'}"]
    command += ["--feature-gates=VisibilityOnDemand=false"]
    components.start("kueue", command, {"KUBECONFIG": str(api.folder / "kubeconfig")})
    try:
        _mount(api, work / "certificates", components.check)
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        probe = {**flavor, "metadata": {"name": "probe"}, "spec": {}}
        await_answer(lambda: api.apply(probe, dryRun="All"), components)
        yield
        components.check()
    finally:
        components.stop()


def _register_kueue(api: ClusterApi, folder: Path, port: int) -> None:
    """Create the Secret, the webhooks, and the conversions of Kueue's definitions."""
    reference = {**loopback_service(api, _KUEUE, _WEBHOOKS), "port": port}
    named = {"metadata": {"name": "kueue-webhook-server-cert", "namespace": _KUEUE}}
    api.apply({"apiVersion": "v1", "kind": "Secret", **named})
    for document in yaml.safe_load_all((folder / "manifests.yaml").read_text("utf-8")):
        kind = "mutating" if document["kind"].startswith("Mutating") else "validating"
        document["metadata"]["name"] = f"kueue-{kind}-webhook-configuration"
        # Of the configuration's integrations only.
        groups = {"batch", "kueue.x-k8s.io"}
        document["webhooks"] = [
            hook for hook in document["webhooks"] if {*hook["rules"][0]["apiGroups"]} <= groups
        ]
        for hook in document["webhooks"]:
            hook["clientConfig"]["service"] |= reference
        api.apply(document)
    for plural in ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters"):
        client = {"service": {**reference, "path": "/convert"}}
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client}}
        conversion["webhook"]["conversionReviewVersions"] = ["v1"]  # type: ignore[index]
        path = f"{_DEFINITIONS}/{plural}.kueue.x-k8s.io"
        api.request("PATCH", path, {"spec": {"conversion": conversion}}, "application/merge-patch+json")


def _mount(api: ClusterApi, folder: Path, check: Callable[[], bool]) -> None:
    """Write a Secret's files as a kubelet does, once the controller has filled it."""

    def is_filled() -> Mapping[str, str]:
        check()
        path = f"/api/v1/namespaces/{_KUEUE}/secrets/kueue-webhook-server-cert"
        data: Mapping[str, str] = api.get(path).get("data") or {}
        return data

    wait_until(lambda: bool(is_filled()), interval_seconds=0.2)
    for name, text in is_filled().items():
        (folder / name).write_bytes(base64.b64decode(text))


@contextlib.contextmanager
def karpenter(api: ClusterApi, types: Iterable[str]) -> Iterator[None]:
    """Run Karpenter with its kwok provider, which makes Node objects of these instance types in two zones."""
    folder, work = built("karpenter"), api.folder / "karpenter"
    work.mkdir()
    define(api, folder)
    components = Components(work)
    await_answer(lambda: api.get("/apis/karpenter.kwok.sh/v1alpha1"), components)
    (work / "types.json").write_text(json.dumps([_instance_type(name) for name in types]))
    metrics, health = free_ports(2)
    variables = {
        **{"KUBECONFIG": str(api.folder / "kubeconfig"), "DISABLE_LEADER_ELECTION": "true"},
        **{"METRICS_PORT": str(metrics), "HEALTH_PROBE_PORT": str(health)},
        **{"INSTANCE_TYPES_FILE_PATH": str(work / "types.json"), "BATCH_IDLE_DURATION": "200ms"},
        "FEATURE_GATES": "NodeRepair=true",  # as the stack's chart has it
    }
    components.start("karpenter", [folder / "kwok"], variables)
    try:
        yield
        components.check()
    finally:
        components.stop()


def _instance_type(name: str) -> Manifest:
    size, kind = INSTANCE_SIZES[name], accelerators.lookup(name)
    prices = {"spot": 0.3, "on-demand": 1.0}
    offerings = [
        {
            **{"Price": prices[capacity], "Available": True},
            "Requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
            ],
        }
        for capacity, zone in itertools.product(prices, ("us-west-2a", "us-west-2b"))
    ]
    resources = {"cpu": str(size.vcpus), "memory": f"{size.memory_gib}Gi", GPU: str(kind.accelerators)}
    return {
        **{"name": name, "offerings": offerings, "architecture": "amd64", "operatingSystems": ["linux"]},
        "resources": {**resources, "pods": "110"},
    }


def for_kwok(api: ClusterApi, pool: Manifest) -> Manifest:
    """Return a NodePool for the kwok provider; its node class is there."""
    changed, name = copy.deepcopy(pool), pool["metadata"]["name"]
    node_class: Manifest = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
    api.apply({**node_class, "metadata": {"name": name}, "spec": {}})
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name}
    changed["spec"]["template"]["spec"]["nodeClassRef"] = reference
    return changed


class KarpenterKubelet(PlayedKubelet):
    """The kubelets of the nodes that Karpenter makes, and of no others."""

    def _step(self) -> list[Manifest]:
        names = {item["metadata"]["name"] for item in self._api.items("/api/v1/nodes")}
        with self._lock:
            new, self._reachable = names - self._reachable, names
        for name in new:
            self._report_node(name, {})
            lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}
            with contextlib.suppress(RefusedError):
                self._api.post(LEASES, {"metadata": {"name": name}, "spec": lease})
        return super()._step()
