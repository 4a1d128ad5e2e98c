"""A Kubernetes control plane with 1,000 nodes and 5,000 pods of entries: who calls its API server, how often.

    make bench-cluster-load

The control plane of ``make test-cluster`` has the defaults of Kubernetes. Nodes are played: their leases,
statuses and pods' statuses are as many as those of kubelets. A stack's entries are applied; the workers of
its services are `spot_work`'s, with requests that come and end. Then some nodes are drained as Karpenter
does, and the services scaled down. Karpenter, KEDA, Kueue and the nodes' DaemonSets are not there.
"""

from __future__ import annotations

import contextlib
import copy
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.parts import needs
from bench.parts.load import calls
from bench.parts.load.nodes import ManyNodes
from bench.parts.load.workers import work
from bench.parts.page import replace_part, table
from bench.parts.run import MACHINE, parser_of, write
from infra.kubernetes.context import Manifest
from infra.kubernetes.render import manifests
from infra.settings import load_settings
from tests.cluster import clusters
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.kubelet import PlayedNode
from tests.kubernetes.entries import JOB, SERVICE, STACK, context
from tests.waiting import wait_until

GPUS: Final = 8
"""Of a service's node."""
WORKERS: Final = 160
"""Of a service, at the most."""
_START_SECONDS: Final = 1800.0
_WARM_UP_SECONDS: Final = 240.0
"""Until the workers' requests are independent of their common start."""
_EVICTION_SECONDS: Final = (0.1, 10.0)
"""From a refused eviction to the next one of the same pod: the first time, and at the most."""
_DRAINED_AT_ONCE: Final = 4
_CALLERS: Final = {
    "workers": (calls.WORKERS,),
    "kubelets": ("kubelet",),
    "control plane": ("controller-manager", "scheduler", "apiserver"),
    "Pulumi": ("pulumi",),
}
_PARTS: Final = ("apiserver", "etcd", "controller-manager", "scheduler")


@dataclass
class Load:
    """A cluster under load; ``readings`` are the phases, with the counters before and after."""

    api: ClusterApi
    objects: list[Manifest]
    nodes: ManyNodes
    namespace: str
    readings: list[tuple[str, calls.Reading, calls.Reading]] = field(default_factory=list)

    def caller(self, agent: str) -> ClusterApi:
        """Return a client of its own, with a user agent by which the audit log knows it."""
        return ClusterApi(self.api.folder / "kubeconfig", agent)

    def of_kind(self, kind: str) -> list[Manifest]:
        """Return the stack's objects of a kind."""
        return [item for item in self.objects if item["kind"] == kind]

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Read the counters before and after what is done in it; no node may have been late meanwhile."""
        before = calls.read(self.api, time.time(), self.api.folder)
        yield
        self.readings.append((name, before, calls.read(self.api, time.time(), self.api.folder)))
        ready = [
            condition["status"]
            for node in self.api.items("/api/v1/nodes")
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready"
        ]
        late = len(ready) - ready.count("True")
        assert not late, f"{late} of {len(ready)} played nodes were late: their pods are unready"

    def wait_for(self, pods: int) -> None:
        """Wait until as many pods run."""

        def are_there() -> bool:
            assert self.nodes.is_alive, self.nodes.errors[-3:]
            return len(self.nodes.running) == pods

        wait_until(are_there, _START_SECONDS, 0.5)


def entries(services: int, jobs: int) -> tuple[list[Manifest], str]:
    """Render a stack with so many entries; return its objects and its namespace."""
    raw = copy.deepcopy(STACK)
    # A fallback group's slots are a part of ``max``.
    large = {"kind": "mixed-asg", "target": 4, "max": WORKERS // GPUS + 1, "instanceTypes": ["g6.48xlarge"]}
    service = {**SERVICE, "reportsReadiness": False, "capacity": large}
    raw["gpu-spot:services"] = [{**service, "name": f"ocr-{number}"} for number in range(services)]
    raw["gpu-spot:training"] = [{**JOB, "name": f"net-{number}", "datasets": []} for number in range(jobs)]
    settings = load_settings(raw)
    rendering = context(settings)
    return manifests(settings, rendering), rendering.namespace


def add_nodes(load: Load, template: Manifest, names: list[str], gpus: int) -> None:
    """Register nodes with the labels that pods of a template select."""
    labels = template["spec"]["template"]["spec"]["nodeSelector"]
    for name in names:
        load.nodes.add(PlayedNode(name, labels, gpus))


def scale(load: Load, replicas: int) -> None:
    """Set the size of all services, as their autoscalers do."""
    autoscaler = load.caller("horizontal-pod-autoscaler")
    for item in load.of_kind("Deployment"):
        path = f"{autoscaler.path(item)}/scale"
        autoscaler.request("PATCH", path, {"spec": {"replicas": replicas}}, "application/merge-patch+json")
    autoscaler.close()


def drain(load: Load, node: str) -> None:
    """Drain a node as Karpenter does: a taint, evictions until its pods have gone, its end.

    A refused eviction is tried again later and later. Source: Karpenter, ``terminator/eviction.go``.
    """
    karpenter = load.caller("karpenter")
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    karpenter.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    path = f"/api/v1/namespaces/{load.namespace}/pods"
    tries: dict[str, tuple[float, float]] = {}  # by pod: the delay after the next try, its time

    def is_empty() -> bool:
        # Karpenter reads pods from its cache.
        pods = load.api.items(path, fieldSelector=f"spec.nodeName={node},status.phase=Running")
        for pod in pods:
            uid = pod["metadata"]["uid"]
            delay, next_at = tries.get(uid, (_EVICTION_SECONDS[0], 0.0))
            if "deletionTimestamp" not in pod["metadata"] and time.monotonic() >= next_at:
                tries[uid] = min(2 * delay, _EVICTION_SECONDS[1]), time.monotonic() + delay
                eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {}}
                eviction["metadata"] = {key: pod["metadata"][key] for key in ("name", "namespace")}
                with contextlib.suppress(RefusedError):  # 429: the budget; again after a while
                    karpenter.post(f"{path}/{pod['metadata']['name']}/eviction", eviction)
        return not pods

    wait_until(is_empty, _START_SECONDS, 1.0)
    load.nodes.lose(node)
    karpenter.close()


def play(load: Load, minutes: float, start_workers: Callable[[], None]) -> None:
    """Start all pods, let them work, drain a node of each service, and scale down by half."""
    services, jobs = load.of_kind("Deployment"), load.of_kind("Job")
    pods = len(services) * WORKERS + len(jobs)
    with load.phase("start"):
        pulumi = load.caller("pulumi")
        for item in load.objects:
            pulumi.apply(item)
        pulumi.close()
        scale(load, WORKERS)
        start_workers()
        load.wait_for(pods)
    time.sleep(_WARM_UP_SECONDS)
    with load.phase("steady"):
        time.sleep(60 * minutes)
    with load.phase("drain"):
        drained = []
        for item in services:
            name = item["metadata"]["name"]
            add_nodes(load, item, [f"{name}-new"], GPUS)
            drained.append(f"{name}-0")
        for item in jobs[: len(services)]:
            name = item["metadata"]["name"]
            add_nodes(load, item, [f"{name}-new"], 1)
            drained.append(f"{name}-0")
        with ThreadPoolExecutor(_DRAINED_AT_ONCE) as pool:
            list(pool.map(lambda node: drain(load, node), drained))
        load.wait_for(pods)
    with load.phase("scale down"):
        scale(load, WORKERS // 2)
        load.wait_for(pods - len(services) * WORKERS // 2)


def register(load: Load) -> int:
    """Register the nodes; return their number."""
    services, jobs = load.of_kind("Deployment"), load.of_kind("Job")
    for item in services:
        add_nodes(load, item, [f"{item['metadata']['name']}-{n}" for n in range(WORKERS // GPUS)], GPUS)
    for item in jobs:
        add_nodes(load, item, [f"{item['metadata']['name']}-0"], 1)
    return len(services) * WORKERS // GPUS + len(jobs)


def report(name: str, load: Load, before: calls.Reading, after: calls.Reading) -> dict[str, Any]:
    """Return what a phase's readings and the audit log say."""
    seconds = after.at - before.at
    requests = calls.requests(load.api.folder, load.namespace, before.at, after.at)
    return {
        "phase": name,
        "seconds": round(seconds),
        **requests,
        "cpu": {part: round((after.cpu[part] - before.cpu[part]) / seconds, 3) for part in _PARTS},
        **{
            key: {
                kind: round((value - getattr(before, key).get(kind, 0)) / seconds)
                for kind, value in sorted(getattr(after, key).items(), key=lambda item: -item[1])[:8]
            }
            for key in ("watch_events", "watch_bytes", "response_bytes")
        },
    }


def objects(load: Load) -> dict[str, Any]:
    """Return how many objects of a kind there are and their bytes of JSON, ours and what came of them."""
    kinds = {"pods": "/api/v1", "events": "/api/v1", "jobs": "/apis/batch/v1"}
    kinds |= {"replicasets": "/apis/apps/v1", "deployments": "/apis/apps/v1"}
    items_of = {
        kind: load.api.items(f"{root}/namespaces/{load.namespace}/{kind}") for kind, root in kinds.items()
    }
    return {kind: _sizes(items) for kind, items in {**items_of, "applied": load.objects}.items()}


def _sizes(items: Sequence[Manifest]) -> dict[str, int]:
    sizes = [len(json.dumps(item, separators=(",", ":"))) for item in items]
    return {"count": len(sizes), "mean_bytes": round(sum(sizes) / max(1, len(sizes)))}


def measured(folder: Path, options: Any) -> dict[str, Any]:
    """Play the whole load on a control plane in ``folder``."""
    items, namespace = entries(options.services, options.jobs)
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(clusters.cluster(folder, audit=calls.AUDIT))
        kubelets = ClusterApi(folder / "kubeconfig", "kubelet")
        nodes = stack.enter_context(ManyNodes(kubelets, namespace))
        load = Load(api, items, nodes, namespace)
        tokens = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokens-")))
        arguments = (folder / "kubeconfig", namespace, tokens, options.request_seconds, options.gap_seconds)
        workers = multiprocessing.get_context("spawn").Process(target=work, args=arguments, daemon=True)
        stack.callback(lambda: workers.is_alive() and workers.terminate())
        registered = register(load)
        play(load, options.minutes, workers.start)
        assert workers.is_alive(), "the played workers have ended"
        return {
            **MACHINE,
            "nodes": registered,
            "services": options.services,
            "jobs": options.jobs,
            "pods": options.services * WORKERS + options.jobs,
            "request_seconds": options.request_seconds,
            "gap_seconds": options.gap_seconds,
            "objects": objects(load),
            "phases": [report(name, load, before, after) for name, before, after in load.readings],
            "kubelet_errors": len(nodes.errors),
        }


def page_part(result: dict[str, Any]) -> str:
    """Return the section of the page."""
    rows = []
    for phase in result["phases"]:
        rates = phase["requests_per_s"]
        total = sum(rates.values())
        shares = [sum(rates.get(name, 0.0) for name in names) for names in _CALLERS.values()]
        cells = [f"{phase['seconds']}", f"{total:.0f}", *(f"{share:.1f}" for share in shares)]
        rows.append(
            [phase["phase"], *cells, f"{100 * shares[0] / total:.1f}", f"{phase['cpu']['apiserver']:.2f}"]
        )
    head = ["phase", "s", "requests/s", *_CALLERS, "workers %", "API server's CPUs"]
    pods, jobs = (result["objects"][kind] for kind in ("pods", "jobs"))
    steady = next(phase for phase in result["phases"] if phase["phase"] == "steady")
    return f"""## API calls of a large cluster

`make bench-cluster-load`, on the control plane of `make test-cluster` with {result["cpus"]} CPUs for all: \
{result["nodes"]:,} played nodes, {result["services"]} services with {WORKERS} workers, {result["jobs"]} \
jobs; {result["pods"]:,} pods. Requests take {result["request_seconds"]:g} s with pauses of \
{result["gap_seconds"]:g} s, means of exponential distributions. Requests a second by the audit log, \
by who made them. In *drain* a node of each service is emptied by evictions, in *scale down* half of the \
workers end.

{table(head, rows)}

Jobs ask for nothing while they run. A Job is {jobs["mean_bytes"] / 1000:.0f} KB of JSON, with its scripts, \
a pod {pods["mean_bytes"] / 1000:.0f} KB on average; steady, watches of pods are sent \
{steady["watch_bytes"].get("pods", 0) / 1000:.0f} KB/s."""


def main() -> int:
    """Run it; return 1 if the API server had no room for a request of ours."""
    parser = parser_of(__doc__, "cluster-load", docs=True)
    parser.add_argument("--services", type=int, default=29, help=f"services with {WORKERS} workers each")
    parser.add_argument("--jobs", type=int, default=360, help="jobs, each with a node of its own")
    parser.add_argument("--minutes", type=float, default=3, help="of steady work")
    parser.add_argument("--request-seconds", type=float, default=30, help="mean time of a request")
    parser.add_argument("--gap-seconds", type=float, default=30, help="mean time from one to the next")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        try:
            result = measured(Path(name), options)
        except clusters.LackingClusterError as lacking:
            needs.say(f"a control plane is needed: {lacking}")
            return 2
    write(options.out, result)
    replace_part(options.docs / "performance.md", "cluster-load", page_part(result))
    for phase in result["phases"]:
        print(json.dumps({key: value for key, value in phase.items() if key != "calls_per_s"}, indent=2))
    return int(any(calls.WORKERS in phase["refused"] for phase in result["phases"]))


if __name__ == "__main__":
    sys.exit(main())
