from __future__ import annotations

from typing import Any

import pytest

from pulumi_on_moto import LocalCloudError
from pulumi_on_moto.cluster.api import ApiRefusedError, ApiServer, ObjectKey
from pulumi_on_moto.cluster.clusters import PROVIDER, RELEASE, Clusters
from pulumi_on_moto.cluster.fields import fields, joined

SPACE: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}}
POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}]}]},
}
WEB: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "work"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": POD},
}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "work"},
    "spec": {"template": {"spec": {**POD["spec"], "restartPolicy": "Never"}}},
}


@pytest.fixture
def api() -> ApiServer:
    server = ApiServer("1.36", groups=set())
    server.apply(SPACE)
    return server


def changed(manifest: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**manifest, "spec": {**manifest["spec"], **spec}}


def test_fields_are_an_object_again() -> None:
    assert joined(fields(WEB)) == WEB
    assert ("spec", "template", "spec", "containers", "[web]", "env", "[A]", "value") in fields(WEB)


def test_what_another_owns_stays_and_is_not_fought_over(api: ApiServer) -> None:
    key = api.apply(WEB)
    api.take("keda", key, {**WEB, "spec": {"replicas": 7}})
    api.apply(WEB)
    assert api.read(key)["spec"]["replicas"] == 7
    with pytest.raises(ApiRefusedError, match=r"conflict with keda over spec\.replicas"):
        api.apply(changed(WEB, replicas=1))


def test_an_omitted_field_goes_unless_another_manager_has_it(api: ApiServer) -> None:
    key = api.apply(changed(WEB, replicas=2))
    api.apply(WEB)
    assert "replicas" not in api.read(key)["spec"]


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (changed(WEB, replica=2), "replica"),
        (changed(WEB, replicas="two"), "two"),
        ({**WEB, "metadata": {"name": "Web", "namespace": "work"}}, r"metadata\.name must be .*, not 'Web'"),
        ({**WEB, "metadata": {"name": "web", "namespace": "play"}}, "namespaces 'play' not found"),
        ({**WEB, "metadata": {"name": "web"}}, "metadata.namespace is ''"),
        ({**WEB, "apiVersion": "apps/v2"}, "is not served by 1.36"),
        ({**SPACE, "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}, "no matches for kind"),
    ],
)
def test_what_the_api_refuses(api: ApiServer, manifest: dict[str, Any], why: str) -> None:
    with pytest.raises(ApiRefusedError, match=why):
        api.apply(manifest)


@pytest.mark.parametrize(
    ("manifest", "spec"),
    [
        (JOB, {"template": {"spec": {**JOB["spec"]["template"]["spec"], "hostname": "a"}}}),
        (JOB, {"completions": 2}),
        (JOB, {"successPolicy": {"rules": [{"succeededCount": 1}]}}),
        (WEB, {"selector": {"matchLabels": {"app": "other"}}}),
    ],
)
def test_immutable_fields(api: ApiServer, manifest: dict[str, Any], spec: dict[str, Any]) -> None:
    api.apply(manifest)
    with pytest.raises(ApiRefusedError, match="is immutable"):
        api.apply(changed(manifest, **spec))
    assert (
        api.read(ObjectKey(manifest["apiVersion"], manifest["kind"], "work", manifest["metadata"]["name"]))
        == manifest
    )


def test_a_job_may_be_given_more_time(api: ApiServer) -> None:
    key = api.apply(changed(JOB, activeDeadlineSeconds=60))
    api.apply(changed(JOB, activeDeadlineSeconds=90))
    assert api.read(key)["spec"]["activeDeadlineSeconds"] == 90


def test_a_custom_resource_is_counted_as_unchecked() -> None:
    api = ApiServer("1.36")
    manifest = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}}
    assert api.unchecked == set()
    assert {api.apply(manifest)} == api.unchecked


def test_a_provider_leads_to_a_cluster_of_eks_or_is_refused() -> None:
    clusters = Clusters(lambda service: None)  # type: ignore[arg-type]
    with pytest.raises(LocalCloudError, match="kubeconfig is not one that EKS takes"):
        clusters.provider("there", {"kubeconfig": "{}"})
    with pytest.raises(LocalCloudError, match="'context' has no meaning here"):
        clusters.provider("there", {"context": "minikube"})
    with pytest.raises(LocalCloudError, match="no provider names its cluster"):
        clusters.declare(RELEASE, "keda", {"chart": "keda"}, f"{PROVIDER}::there::id")
