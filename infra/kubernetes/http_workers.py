"""Manifests of HTTP workers: when a pod is ready, how it drains, and who may list the pods."""

from __future__ import annotations

import math
from typing import Final

from infra.kubernetes.context import ClusterContext, Manifest
from infra.kubernetes.pod_roles import API_GROUP, bound_role
from infra.schema import Service
from infra.schema.services.http import Http

SEEN_SECONDS: Final = 15
"""Time in which each proxy has seen that a pod is ready, or being deleted, also if it has just lost its
connection to the API (``userdata.agent.proxy.pods``)."""
_PROBE_SECONDS: Final = 2
_RESTART_PROBE_SECONDS: Final = 5
"""Interval of probes that restart a worker, and time that each has: an attempt takes no longer."""
_HUNG_GRACE_SECONDS: Final = 30
"""Time from SIGTERM to SIGKILL of a worker that a probe has found to hang; the pod's is half an hour."""


def proxies_group(stack: str, service: str) -> str:
    """Return the group of Kubernetes that the access entry of a service's proxies has."""
    return f"gpu-spot:{stack.lower()}:{service}:proxies"


def container(service: Service, http: Http) -> Manifest:
    """Return the keys of a worker's container.

    One that is not ready ``health.graceSeconds`` after its start, or later not for
    ``health.stallTimeoutSeconds`` at a time, is restarted. Source: Kubernetes, "Configure Liveness, Readiness
    and Startup Probes" (the others begin once the startup probe succeeds; probe-level
    ``terminationGracePeriodSeconds``).

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
        "startupProbe": _restarting(probe, service.health.grace_seconds),
        "readinessProbe": {**probe, "periodSeconds": _PROBE_SECONDS},
        "livenessProbe": _restarting(probe, service.health.stall_timeout_seconds),
        "lifecycle": {"preStop": {"sleep": {"seconds": max(service.drain_seconds, SEEN_SECONDS)}}},
    }


def _restarting(probe: Manifest, seconds: int) -> Manifest:
    """Return a probe that restarts a worker after some seconds."""
    return {
        **probe,
        "periodSeconds": _RESTART_PROBE_SECONDS,
        "timeoutSeconds": _RESTART_PROBE_SECONDS,
        "failureThreshold": math.ceil(seconds / _RESTART_PROBE_SECONDS),
        "terminationGracePeriodSeconds": _HUNG_GRACE_SECONDS,
    }


def permissions(service: Service, context: ClusterContext) -> list[Manifest]:
    """Return what lets the proxies of a service read the namespace's pods, and nothing else."""
    metadata = context.metadata(f"{service.name}-proxies", service.name)
    group = {"apiGroup": API_GROUP, "kind": "Group", "name": proxies_group(context.stack, service.name)}
    return bound_role(metadata, ["list", "watch"], group)
