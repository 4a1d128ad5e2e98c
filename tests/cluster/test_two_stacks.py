"""Two stacks in one cluster: neither changes the other's objects, nor takes them along when it goes."""

from __future__ import annotations

import pytest

from infra.kubernetes.context import ClusterContext, Manifest
from infra.kubernetes.render import manifests
from tests.cluster.client import ClusterApi
from tests.kubernetes.entries import context, settings
from tests.waiting import wait_until


def objects(stack: str, prefix: str) -> list[Manifest]:
    """Render a stack whose entries' names begin with ``prefix``."""
    matrix = {"environment": {}, "matrix": {"SEED": [1, 2]}}
    changed = settings(job={"name": f"{prefix}resnet", **matrix}, service={"name": f"{prefix}ocr"})
    return manifests(changed, ClusterContext(**{**vars(context(changed)), "stack": stack}))


def written(api: ClusterApi, item: Manifest) -> Manifest:
    """Return which object it is, its labels, and the number of changes of its spec."""
    metadata = api.get(api.path(item))["metadata"]
    assert "deletionTimestamp" not in metadata, metadata["name"]
    return {key: metadata.get(key) for key in ("uid", "labels", "generation")}


@pytest.mark.parametrize("first_goes", [True, False])
def test_a_stack_goes_without_the_others_objects(api: ClusterApi, *, first_goes: bool) -> None:
    number = int(first_goes)
    # Stack and entry read the same in a row.
    stacks = [objects(f"two{number}", "eu-"), objects(f"two{number}-eu", "")]
    for items in stacks:
        for item in items:
            api.apply(item)
    going, staying = stacks if first_goes else reversed(stacks)
    before = [written(api, item) for item in staying]
    for item in reversed(going):
        api.delete(api.path(item), {"propagationPolicy": "Background"})
    [namespace] = [item for item in going if item["kind"] == "Namespace"]
    wait_until(lambda: api.get(api.path(namespace))["status"]["phase"] == "Terminating", interval_seconds=0.2)
    for item in staying:  # the other's next update
        api.apply(item)
    assert [written(api, item) for item in staying] == before
