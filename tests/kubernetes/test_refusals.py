"""Keys that do not apply to an entry on Kubernetes are rejected, not ignored."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import SettingsError
from tests.kubernetes.entries import CLUSTER, JOB, SERVICE, settings

CAPACITY = JOB["capacity"]
ON_INSTANCES = {"job": {"runsOn": "instances"}, "service": {"runsOn": "instances"}}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("job", {"image": None}, "without an image"),
    ("job", {"volumeGiB": 100, "checkpoints": "volume"}, "with volumeGiB 100"),
    ("job", {"image": None, "python": {"version": "3.12", "requirements": "r.txt"}}, "without an image"),
    ("job", {"artifacts": "s3://bucket/a/"}, "with artifacts"),
    ("job", {"repositorySecret": "git"}, "with repositorySecret"),
    ("job", {"deadline": "2099-01-01T00:00:00+00:00"}, "with deadline"),
    ("job", {"budget": 10}, "with budget"),
    ("job", {"stalledAfterMinutes": 30}, "with stalledAfterMinutes 30"),
    ("job", {"nodes": 2, "matrix": {"SEED": [1]}}, "with nodes 2 and matrix"),
    (
        "job",
        {"nodes": {"min": 1, "max": 2, "zone": "us-west-2a"}},
        "with nodes.zone us-west-2a, allowed: without",
    ),
    ("job", {"nodes": {"min": 2, "max": 2, "efa": True}}, "with nodes.efa, allowed: on instances"),
    ("job", {"nodes": {"min": 2, "max": 2, "placementGroup": True}}, "with nodes.placementGroup, allowed:"),
    ("job", {"nodes": 2, "runsOn": "instances"}, "capacity.target: 1, allowed: 2 (nodes.max)"),
    ("job", {"capacity": {**CAPACITY, "instanceTypes": ["g6.xlarge", "g6.12xlarge"]}}, "several sizes"),
    ("job", {"capacity": {**CAPACITY, "spotPercentage": 50}}, "with a mix"),
    ("job", {"capacity": {**CAPACITY, "onDemandBase": 1}}, "with a mix"),
    ("job", {"capacity": {**CAPACITY, "maxPrice": 1}}, "with maxPrice 1"),
    ("job", {"capacity": {**CAPACITY, "fallback": {"warmInstances": 1}}}, "fallback.warmInstances"),
    ("service", {"image": None}, "without an image"),
    ("service", {"slotsPerGpu": 2}, "with slotsPerGpu 2"),
    (
        "service",
        {
            "queue": None,
            "scaling": {"source": "log", "log": {"group": "g", "pattern": "[s]", "seconds": "$s"}},
        },
        "with scaling.source 'log', allowed: 'queue' or 'http'",
    ),
    ("service", {"capacity": {**SERVICE["capacity"], "onDemandBase": 1}}, "with a mix"),
    ("job", {"runsOn": "lambda"}, "'instances' or 'kubernetes'"),
]


@pytest.mark.parametrize(("entry", "changes", "error"), CASES)
def test_it_is_rejected_by_its_key(entry: str, changes: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(**{entry: changes})
    [line] = str(caught.value).splitlines()
    assert line.startswith("gpu-spot:training[0]" if entry == "job" else "gpu-spot:services[0]")
    assert error in line
    assert "allowed" in line


def test_these_keys_are_valid_on_instances() -> None:
    changes = {"runsOn": "instances", "budget": 10, "stalledAfterMinutes": 30}
    assert settings(job=changes, **{"kubernetes": {}}, service={"runsOn": "instances"}).kubernetes is None


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        ({}, "gpu-spot:kubernetes: missing, 'ocr' runs on it"),
        ({**CLUSTER, "version": "1.34"}, "gpu-spot:kubernetes.version"),
        ({**CLUSTER, "nodeImage": "al2023@latest"}, "gpu-spot:kubernetes.nodeImage"),
        ({**CLUSTER, "nodeImage": "bottlerocket@v1.2.3"}, "gpu-spot:kubernetes.nodeImage: .*al2023"),
        ({**CLUSTER, "nodes": 2}, "gpu-spot:kubernetes.nodes: unknown key"),
    ],
)
def test_invalid_cluster_settings_are_rejected(cluster: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingsError, match=error.replace("[", r"\[")):
        settings(kubernetes=cluster)


def ignored(**changes: Any) -> list[str]:
    lines = [line for line in settings(**changes).warnings() if "no effect on Kubernetes" in line]
    return [line.removeprefix("gpu-spot:").partition(": no effect")[0] for line in lines]


def test_keys_without_effect_are_warnings() -> None:
    """A changed key that changes nothing is not silent."""
    assert ignored() == ["services[0].capacity.target", "services[0].drainSeconds"]
    capacity = {**CAPACITY, "target": 1, "ami": "ami-0123456789abcdef0", "allocationStrategy": "lowest-price"}
    service = {
        "drainSeconds": 0,
        "scaling": {"min": 1, "waitSeconds": 30},
        "health": {"graceSeconds": 900},
        "capacity": {**capacity, "max": 8, "fallback": {"policyParameters": {"shortageCost": 4}}},
    }
    assert ignored(service=service, job={"capacity": {**CAPACITY, "onDemandCeiling": 1}}) == [
        "services[0].capacity.ami",
        "services[0].capacity.allocationStrategy",
        "services[0].scaling.waitSeconds",
        "services[0].capacity.fallback.policyParameters",
        "services[0].health.graceSeconds",
        "training[0].capacity.onDemandCeiling",
    ]


def test_a_target_has_an_effect_without_keda_and_on_instances() -> None:
    plain = {"drainSeconds": 0, "scaling": None}
    assert ignored(service=plain) == []
    assert ignored(service={**plain, "scaling": {"min": 1, "dryRun": True}}) == []
    assert ignored(service={"drainSeconds": 0, "scaling": {"min": 4}}) == []
    assert ignored(service={"runsOn": "instances"}) == []


@pytest.mark.parametrize(
    ("job", "quota", "needed"),
    [
        ({"capacity": {**CAPACITY, "instanceTypes": ["g6.12xlarge"]}}, 3, 4),
        ({"nodes": 3}, 2, 3),
        ({"environment": {}, "matrix": {"SEED": [1, 2, 3]}}, 2, 3),
    ],
)
def test_a_job_that_the_quota_can_never_admit_is_rejected(
    job: dict[str, Any], quota: int, needed: int
) -> None:
    """Kueue would keep it waiting without an error."""
    with pytest.raises(SettingsError, match=f"quotaGpus {quota} is below the {needed} GPUs that 'resnet'"):
        settings(job=job, kubernetes={**CLUSTER, "quotaGpus": quota})
    assert settings(job=job, kubernetes={**CLUSTER, "quotaGpus": needed})
