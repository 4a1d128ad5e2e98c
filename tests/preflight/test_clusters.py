"""Preflight of what a cluster's entries need beside the cluster: versions, snapshots, container images."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks import clusters, images
from gpu_spot.preflight.stack import Stack
from infra.catalogue import chart_versions
from pulumi_on_moto import AwsClients
from tests.preflight.test_reservations import CREATE, describe
from tests.preflight.worlds import declared, error, on_kubernetes, results_of, stub_operation

TODAY = date(2026, 11, 29)
SNAPSHOT = "snap-0123456789abcdef0"
TAG = {"Key": "ebs.csi.aws.com/cluster", "Value": "true"}
RELEASE = "kubernetes:helm.sh/v3:Release"


def facts(results: list[CheckResult]) -> list[tuple[str, str]]:
    return [(one.subject, one.status) for one in results]


def supported_until(year: int) -> dict[str, Any]:
    return {"clusterVersion": "1.36", "endOfStandardSupportDate": datetime(year, 12, 2, tzinfo=UTC)}


@pytest.fixture
def account(clients: AwsClients, monkeypatch: pytest.MonkeyPatch) -> AwsClients:
    """An account whose EKS offers 1.36 until August 2027, on a day in November 2026."""
    monkeypatch.setattr(clusters, "_today", lambda: TODAY)
    offer(clients, {"clusterVersion": "1.36", "endOfStandardSupportDate": datetime(2027, 8, 2, tzinfo=UTC)})
    return clients


def changed(stack: Stack, **keys: Any) -> Stack:
    """Return the stack with changes to its service on Kubernetes."""
    assert stack.kubernetes is not None
    [pods] = stack.kubernetes.services
    service = type(pods).model_validate({**pods.model_dump(by_alias=True, exclude_unset=True), **keys})
    return replace(stack, kubernetes=stack.kubernetes.model_copy(update={"services": (service,)}))


def offer(clients: AwsClients, *versions: dict[str, Any]) -> None:
    stub_operation(clients, "eks", "DescribeClusterVersions", {"clusterVersions": [*versions]})


def test_pinned_versions_are_listed_with_their_ages(account: AwsClients) -> None:
    releases = [
        declared(RELEASE, name=name, version=version)
        for name, version in (("karpenter", "1.14.0"), ("keda", "2.21.1"), ("kubeflow-trainer", "2.4.0"))
    ]
    create = {**CREATE, "systemImage": "1.36.2-20260110", "addonVersions": {"coredns": "v1.1.1-eksbuild.1"}}
    found = results_of(clusters.pins, on_kubernetes(releases, create=create), account)
    assert facts(found) == [
        ("Kubernetes 1.36", "ok"),
        ("al2023@v20261101", "ok"),
        ("system nodes: 1.36.2-20260110", "warning"),
        ("coredns v1.1.1-eksbuild.1", "not known"),
        ("karpenter 1.14.0", "ok"),
        ("keda 2.21.1", "ok"),
        ("kubeflow-trainer 2.4.0", "not known"),
    ]
    said = {one.subject: one.finding for one in found}
    assert said["al2023@v20261101"] == "pinned, of 2026-11-01, 28 days old"
    assert said["Kubernetes 1.36"] == "standard support ends on 2027-08-02, in 246 days"


@pytest.mark.parametrize(
    ("versions", "status"),
    [
        ([], "failure"),
        ([{"clusterVersion": "1.35"}], "failure"),
        ([{"clusterVersion": "1.36"}], "not known"),
        ([supported_until(2026)], "warning"),
        ([supported_until(2025)], "warning"),
    ],
)
def test_a_version_that_eks_does_not_offer_or_ends(
    account: AwsClients, versions: list[dict[str, Any]], status: str
) -> None:
    offer(account, *versions)
    [first, *_] = results_of(clusters.pins, on_kubernetes(), account)
    assert (first.subject, first.status) == ("Kubernetes 1.36", status)


def test_a_chart_that_does_not_support_the_version_is_a_warning(account: AwsClients) -> None:
    offer(account, {"clusterVersion": "1.37"})
    stack = on_kubernetes([declared(RELEASE, name="keda", version="2.21.1")], create=CREATE, version="1.37")
    found = [one for one in results_of(clusters.pins, stack, account) if one.status == "warning"]
    assert [(one.subject, one.key) for one in found] == [("keda 2.21.1", "kubernetes.version")]
    assert chart_versions.supports(chart_versions.KARPENTER[-1], "1.37")


def test_an_image_without_a_date_has_no_age(account: AwsClients) -> None:
    found = results_of(clusters.pins, on_kubernetes(nodeImage="al2023@v1.2"), account)
    assert facts(found)[1] == ("al2023@v1.2", "not known")


@pytest.mark.parametrize(
    ("tags", "kind", "status"),
    [
        ([TAG], "create", "ok"),
        ([], "create", "failure"),
        ([{**TAG, "Value": "false"}], "create", "failure"),
        ([], "exists", "warning"),
        (None, "exists", "failure"),
    ],
)
def test_the_tag_of_a_snapshot_lets_the_ebs_driver_use_it(
    account: AwsClients, tags: list[dict[str, str]] | None, kind: str, status: str
) -> None:
    snapshot = {"SnapshotId": SNAPSHOT, "Tags": tags}
    missing = error("InvalidSnapshot.NotFound")
    stub_operation(
        account, "ec2", "DescribeSnapshots", missing if tags is None else {"Snapshots": [snapshot]}
    )
    stack = on_kubernetes(**({"create": CREATE} if kind == "create" else {}))
    dataset = {"snapshot": SNAPSHOT, "path": "/data/a"}
    found = results_of(clusters.snapshots, changed(stack, datasets=(dataset,)), account)
    assert facts(found) == [(SNAPSHOT, status)]
    if status in ("failure", "warning") and tags is not None:
        assert found[0].advice.endswith("--tags Key=ebs.csi.aws.com/cluster,Value=true")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"imageDetails": []}, "ok"),
        (error("ImageNotFoundException"), "failure"),
        (error("RepositoryNotFoundException"), "failure"),
        (error("AccessDeniedException"), "not known"),
    ],
)
def test_ecr_is_asked_for_each_digest(account: AwsClients, answer: dict[str, Any], status: str) -> None:
    asked: list[Any] = []

    def respond(request: Any) -> dict[str, Any]:
        asked.append(request)
        return answer

    stub_operation(account, "ecr", "DescribeImages", respond)
    [found] = results_of(images.containers, on_kubernetes(), account)
    assert (found.status, found.key) == (status, "services[0].image")
    digest = {"imageDigest": "sha256:" + "1" * 64}
    assert asked == [{"registryId": "123456789012", "repositoryName": "web", "imageIds": [digest]}]


@pytest.mark.parametrize("registry", ["docker.io/team", "123456789012.dkr.ecr.eu-west-1.amazonaws.com"])
def test_another_registry_is_not_asked(account: AwsClients, registry: str) -> None:
    stub_operation(account, "ecr", "DescribeImages", error("ImageNotFoundException"))
    stack = on_kubernetes()
    other = changed(stack, image=f"{registry}/web@sha256:{'1' * 64}")
    [found] = results_of(images.containers, other, account)
    assert found.status == "not known"


def test_a_cluster_in_auto_mode_is_refused(account: AwsClients) -> None:
    for is_enabled in (True, False):
        describe(account, computeConfig={"enabled": is_enabled})
        stub_operation(account, "eks", "ListAccessEntries", {"accessEntries": []})
        found = results_of(clusters.run, on_kubernetes(), account)
        assert any("Auto Mode" in one.finding for one in found if one.status == "failure") == is_enabled
