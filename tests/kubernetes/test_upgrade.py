"""Another Kubernetes version of a created cluster: which resources change, and in which order."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.catalogue import chart_versions
from infra.settings import SettingsError
from tests.infra.declared import Run, run
from tests.kubernetes.entries import STACK, settings
from tests.kubernetes.test_own_cluster import CREATED

_ADDONS_FIRST: Final = {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}
_ADDONS_LAST: Final = {
    *("coredns", "snapshot-controller", "aws-ebs-csi-driver", "aws-efs-csi-driver"),
    *("eks-node-monitoring-agent", "aws-secrets-store-csi-driver-provider"),
}
WALK: Final[dict[tuple[str, str], list[set[str]]]] = {
    # of each step: what changes at once; a step waits for the one before
    ("1.35", "1.36"): [{"Cluster"}, _ADDONS_FIRST, {"NodeGroup"}, _ADDONS_LAST],
    ("1.36", "1.37"): [
        *({"Cluster"}, _ADDONS_FIRST, {"NodeGroup"}, _ADDONS_LAST),
        *({"karpenter-crd"}, {"karpenter"}),
    ],
}


def declared(folder: Path, version: str, **create: Any) -> Run:
    raw = copy.deepcopy(STACK)
    cluster = copy.deepcopy(CREATED) | {"version": version}
    raw["gpu-spot:kubernetes"] = {**cluster, "create": {**CREATED["create"], **create}}
    path = folder / f"Pulumi.{version}.yaml"
    path.write_text(yaml.safe_dump({"config": raw}))
    return run("known", path, "dev")


def by_short_name(made: Run) -> dict[str, dict[str, Any]]:
    """Return AWS's and Helm's resources by an add-on's or chart's name, else by kind and name."""
    found = {}
    for one in made.declared:
        inputs, kind = one["inputs"], one["type"].rpartition(":")[2]
        name = f"{kind} {one['name']}"
        if kind in ("Cluster", "NodeGroup"):
            name = kind
        elif kind == "Addon":
            name = inputs["addonName"]
        elif kind == "Release":
            name = inputs["name"]
        if one["custom"]:
            found[name] = one
    return found


def waits_for(made: Run, one: dict[str, Any]) -> set[str]:
    """Return the logical names of all that a resource depends on."""
    dependencies: dict[str, set[str]] = {}
    for item in made.declared:
        dependencies.setdefault(item["name"], set()).update(item["dependencies"])
    found, names = set(), [*one["dependencies"]]
    while names:
        if (name := names.pop()) not in found:
            found.add(name)
            names += dependencies.get(name, ())
    return found


@pytest.mark.parametrize("versions", WALK)
def test_an_upgrade_moves_all_parts_in_their_order(tmp_path: Path, versions: tuple[str, str]) -> None:
    before, after = (by_short_name(declared(tmp_path, version)) for version in versions)
    assert before.keys() == after.keys()
    changed = {name for name, one in after.items() if one["inputs"] != before[name]["inputs"]}
    steps, made = WALK[versions], declared(tmp_path, versions[1])
    assert changed == set().union(*steps)
    for earlier, later in itertools.pairwise(steps):
        for name in later:
            assert {after[one]["name"] for one in earlier} <= waits_for(made, after[name]), name
    pool = next(one for name, one in after.items() if name.startswith("NodePool"))
    assert {after[one]["name"] for one in steps[-1]} <= waits_for(made, pool)


def test_only_versions_change(tmp_path: Path) -> None:
    before, after = (by_short_name(declared(tmp_path, version)) for version in ("1.36", "1.37"))
    keys = {
        key
        for name, one in after.items()
        for key in one["inputs"]
        if one["inputs"][key] != before[name]["inputs"].get(key)
    }
    assert keys == {"version", "addonVersion"}


def test_the_ebs_driver_waits_for_the_definitions_of_snapshots(tmp_path: Path) -> None:
    made = declared(tmp_path, "1.36")
    found = by_short_name(made)
    controller = found["snapshot-controller"]["name"]
    assert controller in waits_for(made, found["aws-ebs-csi-driver"])


def test_the_image_of_system_nodes_is_pinned_and_of_the_clusters_version(tmp_path: Path) -> None:
    group = by_short_name(declared(tmp_path, "1.36", systemImage="1.36.2-20261110"))["NodeGroup"]["inputs"]
    assert (group["version"], group["releaseVersion"]) == ("1.36", "1.36.2-20261110")
    wrong = {**CREATED, "version": "1.37", "create": {**CREATED["create"], "systemImage": "1.36.2-20261110"}}
    with pytest.raises(SettingsError, match=r"systemImage must be of version '1.37', not '1.36.2-20261110'"):
        settings(kubernetes=wrong)


def test_a_chart_is_the_oldest_that_supports_the_version_else_the_newest() -> None:
    found = {
        version: chart_versions.for_kubernetes(chart_versions.KARPENTER, version).version
        for version in ("1.35", "1.37", "1.99")
    }
    assert found == {"1.35": "1.14.0", "1.37": "1.15.2", "1.99": "1.15.2"}
    assert chart_versions.for_kubernetes(chart_versions.KUEUE, "1.37") == chart_versions.KUEUE[0]
