"""Changes that would do harm after an ``up``: what the next preview of a deployed stack refuses or does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.apart import apart
from tests.infra import program
from tests.infra.declared import ROOT, Edit, Run, edited_file, edited_stack, run, shipped

POINT, MOUNTED = "storage.fileSystem.accessPoints", "access point 'checkpoints', which pods mount,"
KEY = "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"


CIDR, ENCRYPTED = {"network.cidr": "10.99.0.0/16"}, {"kmsKeyArn": KEY}


def zones(*letters: str) -> dict[str, Any]:
    return {"network.zones": [f"us-west-2{one}" for one in letters]}


def access_point(**values: Any) -> dict[str, Any]:
    return {f"{POINT}[0].{key}": value for key, value in values.items()}


def job(**values: Any) -> dict[str, Any]:
    return {f"training[0].{key}": value for key, value in values.items()}


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ("research", "volume"),
        *((stack, "/checkpoints on the file system") for stack in ("research-efs", "eks")),
    ],
)
def test_a_job_begins_again_only_if_it_is_asked_to(stack: str, place: str) -> None:
    """Another place of checkpoints, on the file system too, fails the preview without ``startOver``."""
    point = {"name": "runs", "path": "/runs", "userId": 1000, "groupId": 1000}
    moved = {"storage": {"fileSystem": {"accessPoints": [point]}}, **job(checkpoints="runs")}
    error = refusal(stack, moved)
    assert error.startswith(
        f"gpu-spot:training.resnet.checkpoints must stay {place}: the job 'resnet' of this stack"
    )
    assert "To change it, set startOver: true" in error
    again = preview(stack, {**moved, **job(startOver=True)})
    assert again.the("Parameter", "resnet-checkpoints")["insecureValue"] == "/runs on the file system"


def deployed(stack: str) -> list[dict[str, Any]]:
    """What a sample declared when it was deployed, with all values known."""
    return shipped(stack).declared


def refusal(stack: str, edit: Edit) -> str:
    """Return the one line that ends the next preview of a deployed sample."""
    error, _ = apart(program.refused, "again", stack, edited_file(edit, stack), deployed(stack))
    assert "\n" not in error
    return error.removeprefix("RunError: ")


def preview(stack: str, edit: Edit) -> Run:
    """Return what the next preview of a deployed sample declares."""
    file = edited_file(edit, stack)
    return Run(stack, **apart(program.declared, "again", stack, file, deployed(stack)))


def changed(stack: str, edit: Edit) -> dict[str, set[str]]:
    """Return the changed inputs by resource, without new resources."""
    return differences(shipped(stack), preview(stack, edit), shared_only=True)


@pytest.mark.parametrize(
    ("edit", "key", "desired", "owner", "present"),
    [
        (CIDR, "network.cidr", "10.99.0.0/16", "the VPC", "10.30.0.0/16"),
        ({"kubernetes.cluster": "another"}, "kubernetes.cluster", "another", "the cluster", "gpu-spot-eks"),
        (ENCRYPTED, "kmsKeyArn", KEY, "cluster 'gpu-spot-eks'", "arn:"),
        (
            access_point(path="/elsewhere"),
            POINT,
            "path /elsewhere, userId 1000, groupId 1000",
            MOUNTED,
            "path /checkpoints",
        ),
        (
            access_point(userId=2009),
            POINT,
            "path /checkpoints, userId 2009, groupId 1000",
            MOUNTED,
            "path /checkpoints",
        ),
    ],
)
def test_what_a_running_cluster_cannot_follow_is_refused(
    edit: Edit, key: str, desired: str, owner: str, present: str
) -> None:
    error = refusal("eks", edit)
    assert error.startswith(f"gpu-spot:{key} must stay {present}")
    assert f"{owner} of this stack cannot change to {desired}" in error
    assert "To change it, " in error


def test_a_stack_of_its_own_may_have_each_of_them() -> None:
    moved = access_point(path="/elsewhere", userId=2009)
    for mode in ("known", "unknown"):
        stack = edited_stack({**CIDR, **ENCRYPTED, **moved, "kubernetes.cluster": "another"}, "eks", mode)
        assert stack.the("Vpc", "vpc")["cidrBlock"] == "10.99.0.0/16"


def test_the_key_of_a_clusters_secrets_stays_in_both_directions() -> None:
    with_key = edited_stack(ENCRYPTED, "eks").declared
    error, _ = apart(program.refused, "again", "eks", ROOT / "stacks" / "Pulumi.eks.yaml", with_key)
    assert f"kmsKeyArn must stay {KEY}: cluster 'gpu-spot-eks' of this stack cannot change" in error
    assert "EKS never changes the key of a cluster's secrets" in error


def test_a_stack_without_a_cluster_may_get_a_key() -> None:
    assert changed("dev", ENCRYPTED)


@pytest.mark.parametrize(
    ("stack", "letters", "owner"),
    [
        ("ocr", "bc", "the broker of 'ocr'"),
        ("ocr", "bcd", "the broker of 'ocr'"),
        ("eks", "ac", "cluster 'gpu-spot-eks'"),
    ],
)
def test_a_zone_with_a_broker_or_a_clusters_subnet_cannot_be_removed(
    stack: str, letters: str, owner: str
) -> None:
    """Also beside a new zone, whose subnet is not known in the preview."""
    gone = "b" if stack == "eks" else "a"
    assert refusal(stack, zones(*letters)) == (
        f"gpu-spot:network.zones must keep the zones of gpu-spot-{stack}-private-us-west-2{gone}-id, "
        f"which {owner} uses; add zones instead of removing these"
    )


def test_another_zone_of_a_stack_with_a_broker_can_be_removed() -> None:
    after = preview("ocr", zones("a", "b"))
    assert "private-us-west-2c" not in after.of("Subnet")


def test_a_zone_more_replaces_no_node_and_makes_only_what_uses_it_unknown() -> None:
    kinds = {name.split()[0] for name in changed("eks", zones("a", "b", "c"))}
    assert not {"NodeGroup", "PersistentVolume", "Deployment", "Job", "ScaledObject"} & kinds
    assert {"EC2NodeClass", "Group"} <= kinds
    ignored = {one["type"]: one["ignore_changes"] for one in deployed("eks") if one["ignore_changes"]}
    assert "vpcConfig.subnetIds" in ignored["aws:eks/cluster:Cluster"]


def test_an_access_point_of_instances_may_change() -> None:
    after = changed("research-efs", {**access_point(path="/elsewhere"), **job(startOver=True)})
    assert after["AccessPoint files-checkpoints"] == {"rootDirectory"}


def test_a_revision_changes_the_one_job_of_its_entry() -> None:
    """No second Job beside the one that runs."""
    after = preview("eks", job(revision="f" * 40))
    jobs = [one for one in after.declared if one["type"].endswith(":Job")]
    assert [one["name"] for one in jobs] == ["job-resnet"]
    found = differences(shipped("eks"), after)
    assert found["Job job-resnet"] == {"spec"}


@pytest.mark.parametrize("matrix", [None, {"SEED": [1, 2]}])
def test_a_job_is_replaced_where_the_cluster_would_refuse_an_update(matrix: Any) -> None:
    stack = edited_stack(job(matrix=matrix), "eks")
    [found] = [one for one in stack.declared if one["type"].endswith(":Job")]
    assert found["inputs"]["metadata"]["name"] == "resnet"
    assert found["delete_before_replace"]
    assert {"spec.backoffLimitPerIndex", "spec.successPolicy"} <= {*found["replace_on_changes"]}
    assert found["inputs"]["spec"]["backoffLimitPerIndex"] == (6 if matrix is None else 5)


def two_services(kind: str, **capacity: Any) -> Run:
    """Run a stack with two services of a kind, the second one's capacity changed."""
    first = shipped(kind).settings["gpu-spot:services"][0]
    second = {**first, "name": "batch", "capacity": {**first["capacity"], **capacity}}
    return edited_stack({"services": [first, second]}, kind)


def differences(before: Run, after: Run, *, shared_only: bool = False) -> dict[str, set[str]]:
    """Return the inputs that an update would change, by resource; what others own is left out."""

    def seen(of: Run) -> dict[tuple[str, str], dict[str, Any]]:
        return {
            (one["type"], one["name"]): {
                key: value for key, value in one["inputs"].items() if key not in one["ignore_changes"]
            }
            for one in of.declared
        }

    old, new = seen(before), seen(after)
    if shared_only:
        old = {key: inputs for key, inputs in old.items() if key in new}
    else:
        assert old.keys() == new.keys()
    return {
        f"{kind.rpartition(':')[2]} {name}": {
            key
            for key in old[kind, name].keys() | new[kind, name].keys()
            if old[kind, name].get(key) != new[kind, name].get(key)
        }
        for kind, name in old
        if old[kind, name] != new[kind, name]
    }


@pytest.mark.parametrize(
    ("kind", "capacity", "changes"),
    [
        (
            "dev",
            {"onDemandBase": 2, "spotPercentage": 80},
            {"Group batch-primary": {"mixedInstancesPolicy"}, "Parameter batch-config": {"insecureValue"}},
        ),
        (
            "dev",
            {"instanceTypes": ["g6.xlarge", "g5.xlarge"]},
            {
                "Group batch-primary": {"mixedInstancesPolicy"},
                "Group batch-fallback": {"mixedInstancesPolicy"},
                "Parameter batch-config": {"insecureValue"},
            },
        ),
        # The target is the controller's business: no capacity is declared but what stands by.
        ("dev", {"target": 6}, {"Parameter batch-target": {"insecureValue"}}),
        # So are a fleet's base and percentage: they change in place, by the controller.
        ("fleet", {"onDemandBase": 2, "spotPercentage": 75}, {"Parameter batch-config": {"insecureValue"}}),
        (
            "fleet",
            {"target": 6, "fallback": {"warmInstances": 8}},
            {"Group batch-fallback": {"warmPool"}, "Parameter batch-target": {"insecureValue"}},
        ),
        (
            "fleet",
            {"allocationStrategy": "capacity-optimized"},
            {"SpotFleetRequest batch-primary": {"allocationStrategy"}},
        ),
        (
            "fleet",
            {"rootVolumeGiB": 200},
            {
                "LaunchTemplate batch-primary": {"blockDeviceMappings"},
                "LaunchTemplate batch-fallback": {"blockDeviceMappings"},
            },
        ),
    ],
)
def test_a_changed_capacity_changes_its_own_group_only(
    kind: str, capacity: dict[str, Any], changes: dict[str, set[str]]
) -> None:
    found = differences(two_services(kind), two_services(kind, **capacity))
    # How many on-demand instances are too many follows from the mix.
    alarms = {name: keys for name, keys in found.items() if name.startswith("MetricAlarm")}
    assert all("batch" in name for name in alarms)
    assert {name: keys for name, keys in found.items() if name not in alarms} == changes


def test_another_zone_or_way_out_moves_no_subnet() -> None:
    edit = {**zones(*"dcba"), "network.egress": "nat-gateway-per-zone"}
    before, after = run("known"), edited_stack(edit)
    for name, subnet in before.of("Subnet").items():
        assert after.of("Subnet")[name] == subnet | {"mapPublicIpOnLaunch": False}


def test_another_dataset_on_a_jobs_volume_is_refused() -> None:
    def prepared(version: str) -> Path:
        prepare = {"name": "pages", "version": version, "command": ["fill"], "instanceType": "c7i.large"}
        return edited_file(job(prepare=prepare), "research")

    before = run("known", prepared("1"), "research").declared
    error, _ = apart(program.refused, "again", "research", prepared("2"), before)
    assert "training.resnet.checkpoints must stay volume with dataset pages@1: the job 'resnet'" in error
    assert "rename the job; or delete its volume" in error
