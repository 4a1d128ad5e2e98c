"""Keys that do not apply to an entry on Kubernetes are rejected, not ignored."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from infra.kubernetes.context import Manifest
from infra.schema import Kubernetes
from infra.settings import SettingsError
from tests.kubernetes.entries import CLUSTER, JOB, settings, variants
from tests.oracles.kubernetes import CUSTOM_WITHOUT_SCHEMA, validation_error

CAPACITY = JOB["capacity"]


def test_these_keys_are_valid_on_instances() -> None:
    changes = {"runsOn": "instances", "budget": 10, "stalledAfterMinutes": 30}
    assert settings(job=changes, **{"kubernetes": {}}, service={"runsOn": "instances"}).kubernetes is None


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
        "services[0].health",
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
    with pytest.raises(SettingsError, match=f"quotaGpus must be at least {needed}, which 'resnet'"):
        settings(job=job, kubernetes={**CLUSTER, "quotaGpus": quota})
    assert settings(job=job, kubernetes={**CLUSTER, "quotaGpus": needed})


VERSIONS = get_args(Kubernetes.model_fields["version"].annotation)
ALL = [(name, item) for name, items in variants().items() for item in items]
BY_KIND = {item["kind"]: item for _, item in ALL}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", variants())
def test_all_objects_are_valid(name: str, version: str) -> None:
    assert not [error for item in variants()[name] if (error := validation_error(item, version))]


def test_a_pod_of_a_job_is_replaced_only_after_it_terminated() -> None:
    jobs = [item for _, item in ALL if item["kind"] == "Job"]
    runtimes = [item for _, item in ALL if item["kind"] == "TrainingRuntime"]
    specs = [job["spec"] for job in jobs]
    for runtime in runtimes:
        specs += [job["template"]["spec"] for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]]
    assert jobs
    assert runtimes
    assert {spec["podReplacementPolicy"] for spec in specs} == {"Failed"}


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every nested object except mappings with the user's keys."""
    free = ("labels", "annotations", "limits", "parameters", "data", "tags", "nodeSelector", "matchLabels")
    if isinstance(value, dict):
        yield path
        for key, nested in value.items():
            if key not in (*free, "metadata", "requests", "torch", "volumeAttributes"):
                yield from paths(nested, (*path, key))
    elif isinstance(value, list):
        for number, nested in enumerate(value):
            yield from paths(nested, (*path, number))


def with_key(manifest: Manifest, path: tuple[Any, ...], key: str, value: Any) -> Manifest:
    changed = copy.deepcopy(manifest)
    parent: Any = changed
    for part in path:
        parent = parent[part]
    parent[key] = value
    return changed


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_an_unknown_key_is_rejected_at_every_path(kind: str) -> None:
    manifest = BY_KIND[kind]
    passed = [
        path
        for path in paths(manifest)
        if not validation_error(with_key(manifest, path, "gpuSpotUnknown", {}), VERSIONS[-1])
    ]
    assert not passed


WRONG: dict[str, tuple[tuple[Any, ...], str, Any]] = {
    "ConfigMap": ((), "immutable", "yes"),
    "Deployment": (("spec",), "replicas", "4"),
    "Job": (("spec", "podFailurePolicy", "rules", 0), "action", ["Ignore"]),
    "Namespace": ((), "apiVersion", "v2"),
    "PersistentVolume": (("spec",), "mountOptions", "tls"),
    "PersistentVolumeClaim": (("spec",), "accessModes", "ReadWriteMany"),
    "PodDisruptionBudget": (("spec",), "selector", []),
    "Role": ((), "rules", {"verbs": ["patch"]}),
    "RoleBinding": ((), "subjects", "ocr"),
    "ValidatingAdmissionPolicy": (("spec",), "validations", {"expression": "true"}),
    "ValidatingAdmissionPolicyBinding": (("spec",), "validationActions", "Deny"),
    "ServiceAccount": ((), "automountServiceAccountToken", "no"),
    "StorageClass": ((), "parameters", {"throughput": 125}),
    "TrainJob": (("spec", "trainer"), "numNodes", "two"),
    "TrainingRuntime": (("spec",), "mlPolicy", {"numNodes": "2"}),
    "ClusterQueue": ((), "apiVersion", "kueue.x-k8s.io/v1beta1"),
    "EC2NodeClass": ((), "apiVersion", "karpenter.k8s.aws/v1beta1"),
    "LocalQueue": (("spec",), "clusterQueue", {"name": "jobs"}),
    "NodePool": (("spec", "template", "spec"), "expireAfter", {"seconds": 1}),
    "ResourceFlavor": ((), "kind", "Flavor"),
    "ScaledObject": (("spec",), "maxReplicaCount", {}),
    "SecretProviderClass": ((), "apiVersion", "secrets-store.csi.x-k8s.io/v1alpha1"),
    "TriggerAuthentication": (("spec",), "podIdentity", {"provider": {}}),
    "VolumeSnapshot": (("spec",), "source", {"snapshotHandle": "snap-0"}),
    "VolumeSnapshotContent": (("spec",), "deletionPolicy", {}),
}


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_an_invalid_field_is_rejected(kind: str) -> None:
    assert not validation_error(BY_KIND[kind], VERSIONS[-1])
    assert validation_error(with_key(BY_KIND[kind], *WRONG[kind]), VERSIONS[-1])


def test_the_list_of_kinds_without_a_schema_is_complete() -> None:
    core = {"ConfigMap", "Deployment", "Job", "Namespace", "PersistentVolume", "PersistentVolumeClaim"}
    core |= {"PodDisruptionBudget", "ServiceAccount", "StorageClass", "TrainJob", "TrainingRuntime"}
    core |= {"Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert BY_KIND.keys() - core == CUSTOM_WITHOUT_SCHEMA


def test_names_are_valid_and_unique() -> None:
    for name, items in variants().items():
        keys = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in items]
        assert len(keys) == len({*keys}), name
        # Labels have at most 63 characters; a Job's name becomes a label of its pods.
        assert all(len(item["metadata"]["name"]) <= 63 for item in items), name


def test_labels_that_karpenter_restricts_are_rejected() -> None:
    wrong = copy.deepcopy(BY_KIND["NodePool"])
    wrong["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "resnet"
    assert "app.kubernetes.io/name is of a restricted domain" in validation_error(wrong, VERSIONS[0])
