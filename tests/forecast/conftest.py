"""A stack file, its settings, and a fixed market forecast."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_spot.forecast.ranges import Range, SlotForecast
from infra.schema import Settings
from infra.settings import load_settings

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
WEEK = SlotForecast(
    Range(0.3, 0.4, 0.6), Range(1.0, 10.08, 50.4), losses=Range(1.0, 3.0, 9.0), unannounced=0.5
)


def service(name: str = "inference", **capacity: Any) -> dict[str, Any]:
    usual = {"kind": "mixed-asg", "target": 8, "instanceTypes": ["g6.xlarge", "g5.xlarge"]}
    return {"name": name, "capacity": usual | capacity}


def job(name: str = "train", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g6.xlarge"]},
        "repository": "https://github.com/example/training",
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "command": ["python", "train.py"],
        **more,
    }


IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/work@sha256:" + 64 * "1"
STORAGE = {"fileSystem": {"accessPoints": [{"name": "checkpoints", "path": "/checkpoints"}]}}
CLUSTER = {"cluster": "research", "nodeImage": "al2023@v20261101", "nodeRole": "nodes"}


def pods(entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an entry that runs on Kubernetes; a job's checkpoints are on the file system."""
    of_job = {"volumeGiB": 0, "checkpoints": "checkpoints"} if "repository" in entry else {}
    return {**entry, "runsOn": "kubernetes", "image": IMAGE, **of_job, **more}


def stack_file(services: list[dict[str, Any]], jobs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "aws:region": "us-west-2",
        "gpu-spot:network": {"cidr": "10.20.0.0/16", "zones": list(ZONES), "egress": "nat-gateway"},
        "gpu-spot:services": services,
        "gpu-spot:training": jobs or [],
    }


def with_cluster(values: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return values | {"gpu-spot:storage": STORAGE, "gpu-spot:kubernetes": CLUSTER | cluster}


def settings_of(services: list[dict[str, Any]], jobs: list[dict[str, Any]] | None = None) -> Settings:
    return load_settings(with_cluster(stack_file(services, jobs)))


@pytest.fixture
def week() -> SlotForecast:
    return WEEK
