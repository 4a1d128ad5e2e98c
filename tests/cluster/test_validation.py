"""The API server accepts every object of the sample stacks and of generated entries, validated strictly."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from infra.kubernetes.context import Manifest
from pulumi_on_moto.cluster import rules
from tests.cluster import generated
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.clusters import create_namespaces, distinct, refusals
from tests.cluster.conftest import COUNTS_PROPERTY
from tests.infra.declared import ROOT, shipped
from tests.kubernetes.entries import of_kind, variants
from tests.waiting import wait_until

SAMPLES = sorted(
    path.stem.removeprefix("Pulumi.")
    for path in (ROOT / "stacks").glob("Pulumi.*.yaml")
    if "gpu-spot:kubernetes" in yaml.safe_load(path.read_text("utf-8"))["config"]
)
_CHARTS = "kubernetes:helm.sh/"


def sample_objects(stack: str) -> list[Manifest]:
    """Return the objects that a sample stack declares, with ids of AWS's form in place of the mocks'."""
    declared = [
        item["inputs"]
        for item in shipped(stack).declared
        if item["type"].startswith("kubernetes:") and not item["type"].startswith(_CHARTS) and item["custom"]
    ]
    objects = copy.deepcopy(declared)
    for item in objects:
        for key, prefix in (("subnetSelectorTerms", "subnet"), ("securityGroupSelectorTerms", "sg")):
            for term in item.get("spec", {}).get(key, ()):
                if term.get("id", "").endswith("-id"):
                    term["id"] = f"{prefix}-0123456789abcdef0"
    return [item for item in objects if "apiVersion" in item]


def test_it_accepts_every_object_of_the_sample_stacks(
    api: ClusterApi, record_property: Callable[[str, object], None]
) -> None:
    assert SAMPLES
    for stack in SAMPLES:
        objects = sample_objects(stack)
        create_namespaces(api, objects)
        assert refusals(api, objects) == []
        assert {"Job", "NodePool", "ScaledObject"} <= {item["kind"] for item in objects}
        record_property(COUNTS_PROPERTY, f"Pulumi.{stack}.yaml: {len(objects)} accepted, 0 rejected")


def test_it_accepts_every_shape_of_entry(
    api: ClusterApi, record_property: Callable[[str, object], None]
) -> None:
    objects = distinct(item for items in variants().values() for item in items)
    create_namespaces(api, objects)
    assert refusals(api, objects) == []
    record_property(COUNTS_PROPERTY, f"shapes: {len(objects)} accepted, 0 rejected")


def test_what_the_preview_accepts_the_server_accepts(
    api: ClusterApi, record_property: Callable[[str, object], None]
) -> None:
    drawn = generated.entries()
    objects = distinct(item for items in drawn.accepted for item in items)
    create_namespaces(api, objects)
    refused = refusals(api, objects)
    record_property(
        COUNTS_PROPERTY,
        f"generated entries: {len(drawn.accepted)} accepted with {len(objects)} objects, "
        f"{len(drawn.rejected)} rejected in the preview, {len(refused)} objects rejected by the server",
    )
    assert refused == []
    assert len(drawn.accepted) >= generated.COUNT // 2
    assert len(drawn.rejected) >= generated.COUNT // 10
    assert all(re.search("must|known key|;", message) for message in drawn.rejected)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Job", ("spec", "podFailurePolicy", "rules", 0, "unknown"), True),
        ("Job", ("spec", "template", "spec", "restartPolicy"), "OnFailure"),
        ("NodePool", ("spec", "template", "metadata", "labels", "karpenter.sh/nodepool"), "x"),
        ("EC2NodeClass", ("spec", "subnetSelectorTerms", 0, "id"), "private"),
        ("ScaledObject", ("spec", "maxReplicas"), 1),
        ("TrainJob", ("spec", "trainer", "numNodes"), "two"),
    ],
)
def test_it_refuses_what_is_invalid(
    api: ClusterApi, kind: str, path: tuple[str | int, ...], value: Any
) -> None:
    objects = variants()["nodes" if kind == "TrainJob" else "both"]
    create_namespaces(api, objects)
    wrong = copy.deepcopy(next(item for item in objects if item["kind"] == kind))
    *parents, last = path
    parent: Any = wrong
    for part in parents:
        parent = parent[part]
    parent[last] = value
    assert refusals(api, [wrong])


JOB_CHANGES: dict[str, Any] = {
    "activeDeadlineSeconds": 60,
    "backoffLimit": 3,
    "backoffLimitPerIndex": 50,
    "completionMode": "NonIndexed",
    "completions": 50,
    "managedBy": "example.com/controller",
    "maxFailedIndexes": 9,
    "parallelism": 2,
    "podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [9]}}]},
    "selector": {"matchLabels": {"other": "yes"}},
    "successPolicy": {"rules": [{"succeededCount": 2}]},
    "suspend": True,
    "template": {"metadata": {"labels": {"other": "yes"}}},
    "ttlSecondsAfterFinished": 60,
}


def test_the_fields_of_a_job_that_cannot_change_are_those_that_moto_knows(api: ClusterApi) -> None:
    objects = variants()["both"]
    create_namespaces(api, objects)
    job = of_kind(objects, "Job")
    api.apply(job)
    for key, value in JOB_CHANGES.items():
        try:
            api.patch(api.path(job), {"spec": {key: value}}, dryRun="All")
            refusal = ""
        except RefusedError as error:
            refusal = str(error)
        refused = re.search(rf"spec\.{key}: .*(is immutable|only be modified in tandem)", refusal) is not None
        assert refused == rules.immutable(job, ("spec", key)), (key, refusal)
        assert refused == bool(refusal), (key, refusal)
    api.delete(api.path(job), {"propagationPolicy": "Background"})


@pytest.mark.parametrize("stack", SAMPLES)
def test_a_second_update_changes_nothing_and_no_field_of_another_owner(api: ClusterApi, stack: str) -> None:
    objects = sample_objects(stack)
    for item in objects:
        api.apply(item)
    deployment, job = of_kind(objects, "Deployment"), of_kind(objects, "Job")
    api.patch(api.path(deployment), {"spec": {"replicas": 3}}, fieldManager="keda")
    api.patch(api.path(job), {"spec": {"suspend": True}}, fieldManager="kueue")
    for item in objects:
        wait_until(lambda item=item: is_unchanged(api, item), seconds=20)  # type: ignore[misc]
    for item in objects:
        api.apply(item)
    assert api.get(api.path(deployment))["spec"]["replicas"] == 3
    assert api.get(api.path(job))["spec"]["suspend"] is True
    api.delete(api.path(job), {"propagationPolicy": "Background"})


def is_unchanged(api: ClusterApi, item: Manifest) -> bool:
    """Return whether another update would leave an object as it is; a controller may write meanwhile."""
    return stored_fields(api.get(api.path(item))) == stored_fields(api.apply(item, dryRun="All"))


def stored_fields(item: Manifest) -> Manifest:
    """Return an object without its version and the times of its managers' writes, which order them."""
    metadata = dict(item["metadata"])
    del metadata["resourceVersion"]
    managers = [{**manager, "time": ""} for manager in metadata.pop("managedFields")]
    managers.sort(key=lambda manager: (manager["manager"], manager.get("subresource", "")))
    return {**item, "metadata": metadata, "managers": managers}
