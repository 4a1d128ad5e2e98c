"""A stack file with both halves: a job and a service that run on Kubernetes, and ways to change them."""

from __future__ import annotations

import copy
from typing import Any

from infra.kubernetes.place import ClusterPlace, Object
from infra.kubernetes.render import objects
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
    "saysReady": True,
    "drainSeconds": 90,
    "queue": RABBITMQ,
    "scaling": {
        "min": 1,
        "floors": [{"least": 2, "from": "08:00", "to": "24:00", "days": ["mon", "sun"]}],
    },
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
PLACE = {
    "file_system": "fs-0123456789abcdef0",
    "access_points": {"checkpoints": "fsap-0123456789abcdef0"},
    "users": {"checkpoints": (1000, 1000)},
    "snapshot_gib": {SNAPSHOT: 40},
    "subnets": ("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"),
    "security_groups": ("sg-0123456789abcdef0",),
}
FOUND = {"url": "sqs://us-west-2/123456789012", "name": "gpu-spot-dev-ocr", "secret": "brokers/ocr"}
"""What AWS names of queues, of either kind."""


def settings(
    job: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **keys: Any
) -> Settings:
    """The stack file with changes of its job, its service, its top-level keys."""
    raw = copy.deepcopy(STACK)
    raw["gpu-spot:training"][0] |= job or {}
    raw["gpu-spot:services"][0] |= service or {}
    return load_settings(raw | {f"gpu-spot:{key}": value for key, value in keys.items()})


def place(told: Settings) -> ClusterPlace:
    assert told.kubernetes is not None
    queues = {one.name: one.queue.for_workers(one.name, FOUND) for one in told.services if one.queue}
    return ClusterPlace(stack="dev", region="us-west-2", cluster=told.kubernetes, queues=queues, **PLACE)  # type: ignore[arg-type]


def rendered(
    job: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **keys: Any
) -> list[Object]:
    told = settings(job, service, **keys)
    return objects(told, place(told))


VARIANTS: dict[str, list[Object]] = {}


def variants() -> dict[str, list[Object]]:
    """Every shape of entry, rendered once."""
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
                        "saysReady": False,
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
                "nodes": rendered(job={"nodes": 2, "capacity": four, "submodules": True}),
            }
        )
    return VARIANTS


def one(found: list[Object], kind: str) -> Object:
    [only] = [each for each in found if each["kind"] == kind]
    return only
