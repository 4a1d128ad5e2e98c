"""A stack file with a job and a service on Kubernetes, and variants of it."""

from __future__ import annotations

import copy
from typing import Any

from infra.kubernetes.context import ClusterContext, Manifest
from infra.kubernetes.render import manifests
from infra.schema import Settings
from infra.settings import load_settings

IMAGE = f"210987654321.dkr.ecr.us-west-2.amazonaws.com/team/train@sha256:{'1' * 64}"
WORKER = f"210987654321.dkr.ecr.us-west-2.amazonaws.com/team/worker@sha256:{'2' * 64}"
SNAPSHOT = "snap-0123456789abcdef0"
REVISION = "0123456789abcdef0123456789abcdef01234567"
JOB: dict[str, Any] = {
    "name": "resnet",
    "runsOn": "kubernetes",
    "image": IMAGE,
    "repository": "https://example.com/vision/resnet.git",
    "revision": REVISION,
    "command": ["python", "train.py", "--note=costs $(A) $5"],
    "environment": {"LR": "0.1"},
    "volumeGiB": 0,
    "checkpoints": "checkpoints",
    "datasets": [{"snapshot": SNAPSHOT, "path": "/data/circles", "initializationRateMib": 200}],
    "capacity": {"kind": "mixed-asg", "target": 1, "max": 2, "instanceTypes": ["g6.xlarge", "g5.xlarge"]},
}
RABBITMQ: dict[str, Any] = {"kind": "rabbitmq", "existing": {"secret": "brokers/ocr"}}
SERVICE: dict[str, Any] = {
    "name": "ocr",
    "runsOn": "kubernetes",
    "image": WORKER,
    "command": ["worker:read", "--batch", "16"],
    "environment": {"MODEL": "small"},
    "reportsReadiness": True,
    "drainSeconds": 90,
    "queue": RABBITMQ,
    "scaling": {"min": 1, "floors": [{"min": 2, "from": "08:00", "to": "24:00", "days": ["mon", "sun"]}]},
    "capacity": {"kind": "mixed-asg", "target": 4, "max": 8, "instanceTypes": ["g6.xlarge", "g5.xlarge"]},
}
CLUSTER: dict[str, Any] = {
    "cluster": "research",
    "nodeRole": "research-nodes",
    "nodeImage": "al2023@v20261101",
}
STACK: dict[str, Any] = {
    "aws:region": "us-west-2",
    "gpu-spot:network": {"cidr": "10.28.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
    "gpu-spot:storage": {"fileSystem": {"accessPoints": [{"name": "checkpoints", "path": "/checkpoints"}]}},
    "gpu-spot:services": [SERVICE],
    "gpu-spot:training": [JOB],
    "gpu-spot:kubernetes": CLUSTER,
}
CONTEXT = {
    "file_system": "fs-0123456789abcdef0",
    "access_points": {"checkpoints": "fsap-0123456789abcdef0"},
    "users": {"checkpoints": (1000, 1000)},
    "snapshot_gib": {SNAPSHOT: 40},
    "subnets": ("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"),
    "security_groups": ("sg-0123456789abcdef0",),
}
QUEUE_ATTRIBUTES = {
    "url": "sqs://us-west-2/123456789012",
    "name": "gpu-spot-dev-ocr",
    "secret": "brokers/ocr",
}
"""Attributes known after creation, for both kinds of queue."""


def settings(
    job: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **keys: Any
) -> Settings:
    """Return the settings with changes to the job, the service and top-level keys."""
    raw = copy.deepcopy(STACK)
    raw["gpu-spot:training"][0] |= job or {}
    raw["gpu-spot:services"][0] |= service or {}
    return load_settings(raw | {f"gpu-spot:{key}": value for key, value in keys.items()})


def context(settings: Settings) -> ClusterContext:
    assert settings.kubernetes is not None
    queues = {
        service.name: service.queue.for_workers(service.name, QUEUE_ATTRIBUTES)
        for service in settings.services
        if service.queue
    }
    return ClusterContext(
        stack="dev", region="us-west-2", cluster=settings.kubernetes, queues=queues, **CONTEXT
    )  # type: ignore[arg-type]


def rendered(
    job: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **keys: Any
) -> list[Manifest]:
    changed = settings(job, service, **keys)
    return manifests(changed, context(changed))


VARIANTS: dict[str, list[Manifest]] = {}


def variants() -> dict[str, list[Manifest]]:
    """Return the manifests of every variant, rendered once."""
    if not VARIANTS:
        sqs = {"queue": {"kind": "sqs"}}
        four = {**JOB["capacity"], "instanceTypes": ["g6.12xlarge", "g5.12xlarge"]}
        many = {"LR": [str(n) for n in range(25)]}
        VARIANTS.update(
            {
                "both": rendered(),
                "sqs": rendered(service=sqs),
                "on demand, no queue": rendered(
                    service={
                        "queue": None,
                        "scaling": None,
                        "reportsReadiness": False,
                        "command": [],
                        "capacity": {**SERVICE["capacity"], "spotPercentage": 0},
                    }
                ),
                "spot alone": rendered(job={"capacity": {**JOB["capacity"], "fallback": {"enabled": False}}}),
                "matrix": rendered(
                    job={"environment": {}, "matrix": {"LR": ["0.1", "it's"], "SEED": [1, 2]}}
                ),
                "shared matrix": rendered(
                    job={"environment": {}, "matrix": many, "capacity": {**four, "target": 3, "max": 6}}
                ),
                "surviving nodes": rendered(job={"nodes": {"min": 2, "max": 4}, "capacity": four}),
                "nodes": rendered(job={"nodes": 2, "capacity": four, "submodules": True}),
            }
        )
    return VARIANTS


def of_kind(items: list[Manifest], kind: str) -> Manifest:
    [manifest] = [item for item in items if item["kind"] == kind]
    return manifest
