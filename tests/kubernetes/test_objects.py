"""Every object validates strictly for each version of Kubernetes that is allowed; a wrong one is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from infra.kubernetes.place import Object
from infra.schema import Kubernetes
from tests.kubernetes.entries import variants
from tests.oracles.kubernetes import CUSTOM_WITHOUT_SCHEMA, refusal

VERSIONS = get_args(Kubernetes.model_fields["version"].annotation)
ALL = [(name, each) for name, found in variants().items() for each in found]
BY_KIND = {each["kind"]: each for _, each in ALL}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", variants())
def test_all_objects_are_valid(name: str, version: str) -> None:
    assert not [told for each in variants()[name] if (told := refusal(each, version))]


def test_a_pod_of_a_job_has_ended_before_its_successor_is_made() -> None:
    jobs = [each for _, each in ALL if each["kind"] == "Job"]
    runtimes = [each for _, each in ALL if each["kind"] == "TrainingRuntime"]
    specs = [job["spec"] for job in jobs]
    for runtime in runtimes:
        specs += [one["template"]["spec"] for one in runtime["spec"]["template"]["spec"]["replicatedJobs"]]
    assert jobs
    assert runtimes
    assert {spec["podReplacementPolicy"] for spec in specs} == {"Failed"}


def places(told: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every object in an object that is not a mapping of the user's own keys."""
    free = ("labels", "annotations", "limits", "parameters", "data", "tags", "nodeSelector", "matchLabels")
    if isinstance(told, dict):
        yield path
        for key, value in told.items():
            if key not in (*free, "metadata", "requests", "torch", "volumeAttributes"):
                yield from places(value, (*path, key))
    elif isinstance(told, list):
        for number, value in enumerate(told):
            yield from places(value, (*path, number))


def with_key(told: Object, path: tuple[Any, ...], key: str, value: Any) -> Object:
    changed = copy.deepcopy(told)
    here: Any = changed
    for part in path:
        here = here[part]
    here[key] = value
    return changed


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_an_unknown_key_is_refused_wherever_it_stands(kind: str) -> None:
    told = BY_KIND[kind]
    passed = [
        path for path in places(told) if not refusal(with_key(told, path, "gpuSpotUnknown", {}), VERSIONS[-1])
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
def test_a_wrong_field_is_refused(kind: str) -> None:
    assert not refusal(BY_KIND[kind], VERSIONS[-1])
    assert refusal(with_key(BY_KIND[kind], *WRONG[kind]), VERSIONS[-1])


def test_who_is_checked_without_a_schema_is_said() -> None:
    core = {"ConfigMap", "Deployment", "Job", "Namespace", "PersistentVolume", "PersistentVolumeClaim"}
    core |= {"PodDisruptionBudget", "ServiceAccount", "StorageClass", "TrainJob", "TrainingRuntime"}
    assert BY_KIND.keys() - core == CUSTOM_WITHOUT_SCHEMA


def test_names_fit_and_are_each_objects_own() -> None:
    for name, found in variants().items():
        keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
        assert len(keys) == len({*keys}), name
        # Labels take 63 characters, and the names of Jobs become one of their pods' labels.
        assert all(len(each["metadata"]["name"]) <= 63 for each in found), name


def test_karpenter_refuses_labels_of_kubernetes_on_nodes() -> None:
    wrong = copy.deepcopy(BY_KIND["NodePool"])
    wrong["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "resnet"
    assert "app.kubernetes.io/name is of a restricted domain" in refusal(wrong, VERSIONS[0])
