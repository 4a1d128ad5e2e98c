"""Manifests of HTTP workers: when a pod is ready, how it drains, and who may list the pods."""

from __future__ import annotations

from typing import Final

from infra.kubernetes.context import ClusterContext, Manifest
from infra.schema import Service
from infra.schema.services.http import Http

SEEN_SECONDS: Final = 10
"""Time in which each proxy has seen that a pod is ready, or being deleted: several of its lists
(``userdata.agent.proxy.pods``, `DISCOVER_SECONDS`), one of which may time out."""
_PROBE_SECONDS: Final = 2
_RBAC: Final = "rbac.authorization.k8s.io"


def proxies_group(stack: str, service: str) -> str:
    """Return the group of Kubernetes that the access entry of a service's proxies has."""
    return f"gpu-spot:{stack.lower()}:{service}:proxies"


def container(http: Http, drain_seconds: int) -> Manifest:
    """Return the keys of a worker's container.

    A deleted pod waits in its ``preStop`` hook, within its grace period, before it gets SIGTERM: the proxies
    send it no new request meanwhile, and those in flight run on. Source: Kubernetes, "Container Lifecycle
    Hooks" (``sleep`` is stable since 1.34), "Pod Lifecycle", "Termination of Pods".
    """
    if http.protocol == "grpc":
        probe: Manifest = {"tcpSocket": {"port": http.port}}
    else:
        probe = {"httpGet": {"path": http.readiness, "port": http.port}}
    return {
        "ports": [{"name": "requests", "containerPort": http.port}],
        "readinessProbe": {**probe, "periodSeconds": _PROBE_SECONDS},
        "lifecycle": {"preStop": {"sleep": {"seconds": max(drain_seconds, SEEN_SECONDS)}}},
    }


def permissions(service: Service, context: ClusterContext) -> list[Manifest]:
    """Return what lets the proxies of a service list the namespace's pods, and nothing else."""
    metadata = context.metadata(f"{service.name}-proxies", service.name)
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    group = {"apiGroup": _RBAC, "kind": "Group", "name": proxies_group(context.stack, service.name)}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": metadata["name"]},
            "subjects": [group],
        },
    ]
