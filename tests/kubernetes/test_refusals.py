"""What nobody would do for an entry on Kubernetes is refused by its key, not dropped."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import SettingsError
from tests.kubernetes.entries import CLUSTER, JOB, SERVICE, settings

CAPACITY = JOB["capacity"]
ON_INSTANCES = {"job": {"runsOn": "instances"}, "service": {"runsOn": "instances"}}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("job", {"image": None}, "without an image"),
    ("job", {"volumeGiB": 100, "checkpoints": "volume"}, "beside volumeGiB 100"),
    ("job", {"image": None, "python": {"version": "3.12", "requirements": "r.txt"}}, "without an image"),
    ("job", {"artifacts": "s3://bucket/a/"}, "beside artifacts"),
    ("job", {"repositorySecret": "git"}, "beside repositorySecret"),
    ("job", {"deadline": "2099-01-01T00:00:00+00:00"}, "beside deadline"),
    ("job", {"budget": 10}, "beside budget"),
    ("job", {"stalledAfterMinutes": 30}, "beside stalledAfterMinutes 30"),
    ("job", {"nodes": 2, "matrix": {"SEED": [1]}}, "beside nodes 2 and matrix"),
    ("job", {"nodes": 2, "runsOn": "instances"}, "nodes 2 beside runsOn 'instances', allowed: 1"),
    ("job", {"capacity": {**CAPACITY, "instanceTypes": ["g6.xlarge", "g6.12xlarge"]}}, "several sizes"),
    ("job", {"capacity": {**CAPACITY, "spotPercentage": 50}}, "beside a mix"),
    ("job", {"capacity": {**CAPACITY, "onDemandBase": 1}}, "beside a mix"),
    ("job", {"capacity": {**CAPACITY, "maxPrice": 1}}, "beside maxPrice 1"),
    ("job", {"capacity": {**CAPACITY, "fallback": {"warmInstances": 1}}}, "fallback.warmInstances"),
    ("service", {"image": None}, "without an image"),
    ("service", {"slotsPerGpu": 2}, "beside slotsPerGpu 2"),
    ("service", {"capacity": {**SERVICE["capacity"], "onDemandBase": 1}}, "beside a mix"),
    ("job", {"runsOn": "lambda"}, "'instances' or 'kubernetes'"),
]


@pytest.mark.parametrize(("entry", "changes", "says"), CASES)
def test_it_is_refused_by_its_key(entry: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(**{entry: changes})
    [line] = str(caught.value).splitlines()
    assert line.startswith("gpu-spot:training[0]" if entry == "job" else "gpu-spot:services[0]")
    assert says in line
    assert "allowed" in line


def test_what_is_refused_there_may_stand_on_instances() -> None:
    told = {"runsOn": "instances", "budget": 10, "stalledAfterMinutes": 30}
    assert settings(job=told, **{"kubernetes": {}}, service={"runsOn": "instances"}).kubernetes is None


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ({}, "gpu-spot:kubernetes: missing, 'ocr' runs there"),
        ({**CLUSTER, "version": "1.34"}, "gpu-spot:kubernetes.version"),
        ({**CLUSTER, "nodeImage": "al2023@latest"}, "gpu-spot:kubernetes.nodeImage"),
        ({**CLUSTER, "nodes": 2}, "gpu-spot:kubernetes.nodes: unknown key"),
    ],
)
def test_a_cluster_is_named_and_pinned(cluster: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("[", r"\[")):
        settings(kubernetes=cluster)
