"""Services on Kubernetes: what ends workers waits for their requests, and takes those without one first."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.kubernetes import deletion_cost, pods
from infra.kubernetes.context import ClusterContext, Manifest
from infra.kubernetes.render import manifests
from infra.settings import SettingsError
from spot_work import pod as worker_pod
from tests.kubernetes.entries import CLUSTER, SERVICE, context, of_kind, rendered, settings, variants

CAPACITY = SERVICE["capacity"]
ON_DEMAND = {**CAPACITY, "spotPercentage": 0}
SPOT_ONLY = {**CAPACITY, "fallback": {"enabled": False}}
FIXED = {"scaling": None}


def deployment(**service: Any) -> Manifest:
    spec: Manifest = of_kind(rendered(service=service), "Deployment")["spec"]
    return spec


def test_a_worker_has_time_for_its_request_and_a_node_waits_for_its_workers() -> None:
    """RabbitMQ gives a request to another worker after 30 minutes (consumer_timeout)."""
    grace = deployment()["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == pods.DRAIN_SECONDS == 30 * 60
    [pool] = [
        item for item in rendered() if item["kind"] == "NodePool" and item["metadata"]["name"].endswith("ocr")
    ]
    # Karpenter deletes pods that a budget protects their grace period before this: 10 s after a notice.
    assert pool["spec"]["template"]["spec"]["terminationGracePeriod"] == f"{grace + 10}s"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"queue": {"kind": "rabbitmq", "existing": {"secret": "brokers/new"}}}),
        ({"secrets": {"TOKEN": "team/a"}}, {"secrets": {"TOKEN": "team/b"}}),
        ({"secrets": {"TOKEN": "team/a"}}, {"secrets": {"TOKEN": "team/a", "KEY": "team/b"}}),
    ],
)
def test_workers_follow_another_secret_and_never_start_with_the_one_before(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The driver updates a Secret after pods have mounted it: one of the same name has the old content."""
    classes = [
        {
            one["metadata"]["name"]: one["spec"]["parameters"]["objects"]
            for one in rendered(service=service)
            if one["kind"] == "SecretProviderClass"
        }
        for service in (before, after)
    ]
    added = classes[1].keys() - classes[0].keys()
    assert added
    assert all(classes[0][name] == classes[1][name] for name in classes[0].keys() & classes[1].keys())
    mounted = [one.get("secret", {}) for one in deployment(**after)["template"]["spec"]["volumes"]]
    assert added <= {secret.get("secretName") for secret in mounted}


def test_a_scaled_worker_finds_its_pod_as_spot_work_looks_for_it() -> None:
    pod = deployment()["template"]["spec"]
    [container] = pod["containers"]
    [variable] = [item for item in container["env"] if item["name"] == "SPOT_WORK_POD"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    [mount] = [item for item in container["volumeMounts"] if item["name"] == "pod-token"]
    assert mount["mountPath"] == str(worker_pod.ACCOUNT)
    assert deletion_cost.ANNOTATION == worker_pod.ANNOTATION
    [volume] = [item for item in pod["volumes"] if item["name"] == "pod-token"]
    sources = volume["projected"]["sources"]
    assert sources[0]["serviceAccountToken"]["path"] == "token"
    assert [item["path"] for item in sources[1]["configMap"]["items"]] == ["ca.crt"]
    assert [item["path"] for item in sources[2]["downwardAPI"]["items"]] == ["namespace"]


def test_a_service_that_does_not_scale_has_no_access_to_the_api() -> None:
    items = rendered(service=FIXED)
    assert not {"Role", "RoleBinding", "ValidatingAdmissionPolicy"} & {item["kind"] for item in items}
    pod = of_kind(items, "Deployment")["spec"]["template"]["spec"]
    assert "pod-token" not in {item["name"] for item in pod["volumes"]}
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("service", "unavailable"),
    [
        ({**FIXED, "capacity": {**ON_DEMAND, "target": 4}}, 0),
        ({**FIXED, "capacity": {**CAPACITY, "target": 4}}, 0),  # falls back to On-Demand
        ({**FIXED, "capacity": {**SPOT_ONLY, "target": 4}}, 1),
        ({**FIXED, "capacity": {**ON_DEMAND, "fallback": {"enabled": False}, "target": 8, "max": 8}}, 1),
        ({"capacity": CAPACITY}, 0),  # KEDA leaves one instance of the pool's limit
        ({"capacity": {**ON_DEMAND, "fallback": {"enabled": False}}}, 1),
        ({"capacity": SPOT_ONLY}, 1),
    ],
)
def test_a_roll_out_takes_a_worker_away_where_no_gpu_for_another_is_sure(
    service: dict[str, Any], unavailable: int
) -> None:
    strategy = deployment(**service)["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": unavailable}


def test_workers_prefer_different_zones_and_need_none() -> None:
    [spread] = deployment()["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (
        "topology.kubernetes.io/zone",
        "ScheduleAnyway",
    )
    labels = deployment()["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_tags_reach_nodes_and_volumes() -> None:
    tagged = settings(tags={"team": "vision"})
    original = context(tagged)
    items = manifests(tagged, ClusterContext(**{**vars(original), "extra_tags": {"team": "vision"}}))
    expected = {"team": "vision", "gpu-spot:stack": "dev", "gpu-spot:group": "resnet"}
    [node] = [
        item
        for item in items
        if item["kind"] == "EC2NodeClass" and item["metadata"]["name"].endswith("resnet")
    ]
    assert node["spec"]["tags"] == expected
    parameters = of_kind(items, "StorageClass")["parameters"]
    volume_tags = dict(
        value.split("=") for key, value in parameters.items() if key.startswith("tagSpecification_")
    )
    assert volume_tags == expected


def of_stack(stack: str, **service: Any) -> list[Manifest]:
    changed = settings(service=service)
    return manifests(changed, ClusterContext(**{**vars(context(changed)), "stack": stack}))


def identities(items: list[Manifest]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items}


def test_objects_of_two_stacks_have_different_names() -> None:
    """Also where stack and entry read the same in a row: dev and eu-ocr, dev-eu and ocr."""
    assert not identities(of_stack("dev", name="eu-ocr")) & identities(of_stack("dev-eu", name="ocr"))


def test_what_is_bound_to_an_object_of_the_namespace_is_another_in_another_one() -> None:
    """A released volume, and a snapshot's content, take no other claim: its pod would wait for ever."""
    names = [
        {
            item["metadata"]["name"]
            for item in rendered(kubernetes={**CLUSTER, **cluster})
            if item["kind"] in ("PersistentVolume", "VolumeSnapshotContent")
        }
        for cluster in ({}, {"namespace": "vision"})
    ]
    assert len(names[0]) == len(names[1]) == 2
    assert not names[0] & names[1]


@pytest.mark.parametrize("namespace", ["default", "kube-system", "nvidia"])
def test_a_namespace_of_others_is_refused(namespace: str) -> None:
    with pytest.raises(SettingsError, match="must be a namespace of the stack's own"):
        settings(kubernetes={**CLUSTER, "namespace": namespace})


def test_pods_run_on_nodes_of_their_own_stack() -> None:
    for items in (*variants().values(), of_stack("prod")):
        pools = {
            tuple(sorted(item["spec"]["template"]["metadata"]["labels"].items()))
            for item in items
            if item["kind"] == "NodePool"
        }
        templates = [copy.deepcopy(item["spec"]["template"]) for item in items if item["kind"] in _PODS]
        assert templates
        for template in templates:
            assert tuple(sorted(template["spec"]["nodeSelector"].items())) in pools


_PODS = ("Deployment", "Job")
