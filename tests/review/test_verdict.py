"""What the engine may write, and what the verdict says of it: never a traceback, never silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.cli import main
from gpu_spot.review.comment import comment
from gpu_spot.review.environments import ReviewedEnvironment, review_environments
from gpu_spot.review.preview import read
from gpu_spot.review.verdict import EXIT_STATUS, verdict_of

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": '"hunter2"'}
TAGS = {"gpu-spot:group": "web"}
GROUP_TAGS = [{"key": "gpu-spot:group", "value": "web"}, {"key": "gpu-spot:side", "value": "primary"}]


def step(op: str, type_: str, name: str, old: Any = None, new: Any = None, **more: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:dev::gpu-spot::{type_}::{name}"
    states = {
        key: {"urn": urn, "custom": True, "type": type_, "id": f"{name}-id", "inputs": inputs}
        for key, inputs in (("oldState", old), ("newState", new))
        if inputs is not None
    }
    return {"op": op, "urn": urn, **states, **more}


def target(value: Any = "8", new: Any = None, op: str = "same") -> dict[str, Any]:
    old = {"insecureValue": value, "tags": TAGS}
    after = {"insecureValue": value if new is None else new, "tags": TAGS}
    return step(op, "aws:ssm/parameter:Parameter", "gpu-spot-dev-web-target", old, after)


def reviewed(*steps: dict[str, Any], **digest: Any) -> list[ReviewedEnvironment]:
    return review_environments([read("dev", json.dumps({"steps": [*steps], **digest}))], {})


def said(environments: list[ReviewedEnvironment]) -> tuple[str, str]:
    text = comment(environments)
    assert verdict_of(environments).sentence.rstrip(".") in text.splitlines()[2].replace(": no changes", "")
    return verdict_of(environments).outcome, text


@pytest.mark.parametrize("op", ["create", "update", "replace", "delete", "mystery"])
@pytest.mark.parametrize(
    "type_", ["gcp:compute/instance:Instance", "aws:ec2/instance:Instance", "kubernetes:apps/v1:Operator"]
)
def test_a_type_that_no_table_has_may_end_workers(op: str, type_: str) -> None:
    outcome, text = said(reviewed(step(op, type_, "it", {"size": 1}, {"size": 2})))
    assert outcome == "unknown"
    assert "may end workers: not known" in text


@pytest.mark.parametrize("op", ["same", "read", "refresh", "discard", "remove-pending-replace", "import"])
def test_what_touches_only_the_state_ends_nothing(op: str) -> None:
    assert said(reviewed(step(op, "gcp:compute/instance:Instance", "it", {}, {})))[0] == "nothing"


def test_an_import_is_named() -> None:
    assert (
        "imported as they are: `it`" in said(reviewed(target(), step("import", "a:b:C", "it", None, {})))[1]
    )


def test_an_alias_replaces_nothing_and_is_named() -> None:
    renamed = target()
    renamed["oldState"]["urn"] = "urn:pulumi:dev::gpu-spot::aws:ssm/parameter:Parameter::before"
    outcome, text = said(reviewed(renamed, target("8", "9", "update")))
    assert outcome == "nothing"
    assert "1 resource renamed in the state by an alias" in text


def test_a_retained_resource_stays_in_the_account() -> None:
    group = step("delete", "aws:autoscaling/group:Group", "g", {"tags": GROUP_TAGS})
    assert said(reviewed(group))[0] == "ends"
    group["oldState"]["retainOnDelete"] = True
    outcome, text = said(reviewed(group))
    assert outcome == "nothing"
    assert "stay in the account: `g`" in text


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [("8", "6", "ends"), ("8", "9", "nothing"), ("8", UNKNOWN, "unknown"), ("8", SECRET, "unknown")],
)
def test_an_unknown_or_secret_target_is_not_known(old: str, new: Any, outcome: str) -> None:
    found, text = said(reviewed(target(old, new, "update")))
    assert found == outcome
    assert UNKNOWN not in text
    assert "hunter2" not in text


def test_an_unknown_configuration_is_not_known() -> None:
    config = step(
        *("update", "aws:ssm/parameter:Parameter", "gpu-spot-dev-web-config"),
        {"insecureValue": '{"max": 8}', "tags": TAGS},
        {"insecureValue": UNKNOWN, "tags": TAGS},
        diffReasons=["insecureValue"],
    )
    outcome, text = said(reviewed(target(), config))
    assert outcome == "unknown"
    assert "known after the update" in text
    assert UNKNOWN not in text


@pytest.mark.parametrize(
    "inputs", [{"tags": UNKNOWN}, UNKNOWN, {"mixedInstancesPolicy": UNKNOWN, "tags": GROUP_TAGS}]
)
@pytest.mark.parametrize("op", ["update", "replace", "delete", "create"])
def test_unknown_inputs_of_a_group_are_read(inputs: Any, op: str) -> None:
    old = {"maxSize": 8, "mixedInstancesPolicy": {}, "tags": GROUP_TAGS}
    new = inputs if isinstance(inputs, dict) else {}
    outcome, _ = said(reviewed(step(op, "aws:autoscaling/group:Group", "gpu-spot-dev-web-primary", old, new)))
    assert outcome != "nothing" or op == "create"


def test_a_part_of_a_stack_is_not_known() -> None:
    outcome, text = said(reviewed(target(), arguments=["--target", "urn:x", "--refresh"]))
    assert outcome == "unknown"
    assert "only a part of the stack was previewed (--target)" in text
    assert said(reviewed(target(), arguments=["--refresh"]))[0] == "nothing"


def test_steps_that_are_missing_are_not_known() -> None:
    outcome, text = said(reviewed(target(), changeSummary={"delete": 3, "same": 1}))
    assert outcome == "unknown"
    assert "counts 3 resources to delete and lists 0" in text
    assert said(reviewed())[0] == "unknown"


def test_a_failed_preview_is_not_known_and_says_what_ends_for_certain() -> None:
    failed = {"diagnostics": [{"severity": "error", "message": "boom"}]}
    assert said(reviewed(target(), **failed))[0] == "unknown"
    outcome, text = said(reviewed(target("8", "6", "update"), **failed))
    assert outcome == "ends"
    assert "At least 2 workers end in `dev` (web): how many in all is not known." in text


def test_protection_removed_from_unchanged_resources_is_named() -> None:
    unprotected = step("same", "aws:s3/bucket:Bucket", "data", {}, {})
    unprotected["oldState"]["protect"] = True
    assert "Bucket `data`" in said(reviewed(unprotected))[1]


def manifest(kind: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": "web", "labels": {"gpu-spot/group": "web", **labels}},
        "spec": spec,
    }


def deployment(image: str, replicas: int | None = 3) -> dict[str, Any]:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {
        "template": {"spec": {"containers": [{"image": image, **limits}]}},
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    }
    return manifest("Deployment", spec | ({} if replicas is None else {"replicas": replicas}))


DEPLOYMENT = "kubernetes:apps/v1:Deployment"
POOL = "kubernetes:karpenter.sh/v1:NodePool"


@pytest.mark.parametrize(
    ("limit", "room"), [("6", "yes, 4 of at most 6 GPUs"), ("3", "**no**, 4 of at most 3 GPUs")]
)
def test_a_pod_template_rolls(limit: str, room: str) -> None:
    pool = manifest("NodePool", {"limits": {"nvidia.com/gpu": limit}})
    change = step("update", DEPLOYMENT, "web", deployment("a"), deployment("b"), diffReasons=["spec"])
    outcome, text = said(reviewed(change, step("same", POOL, "pool", pool, pool)))
    assert outcome == "ends"
    assert "3 workers end in `dev` (web)." in text
    assert "1 pod more at a time, 0 pods fewer" in text
    assert room in text
    assert "node pool: not known" in said(reviewed(change))[1]


def test_scaled_pods_are_not_counted() -> None:
    change = step("update", DEPLOYMENT, "web", deployment("a", None), deployment("b", None))
    assert "Workers end in `dev` (web): how many in all is not known." in said(reviewed(change))[1]


@pytest.mark.parametrize("op", ["replace", "delete"])
def test_a_job_that_goes_ends_the_run(op: str) -> None:
    job = manifest("Job", {"template": {}})
    change = step(op, "kubernetes:batch/v1:Job", "job", job, job if op == "replace" else None)
    assert "1 worker ends in `dev` (web)." in said(reviewed(change))[1]


@pytest.mark.parametrize(("budget", "outcome"), [("0", "nothing"), ("1", "ends")])
def test_a_node_class_drifts_nodes_that_may_be_disrupted(budget: str, outcome: str) -> None:
    pool = manifest(
        "NodePool",
        {
            "template": {"spec": {"nodeClassRef": {"name": "web"}}},
            "disruption": {"budgets": [{"nodes": budget, "reasons": ["Drifted"]}]},
        },
    )
    old, new = (manifest("EC2NodeClass", {"amiSelectorTerms": [{"alias": alias}]}) for alias in "ab")
    change = step("update", "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", "class", old, new)
    assert said(reviewed(change, step("same", POOL, "pool", pool, pool)))[0] == outcome
    assert said(reviewed(change))[0] == "unknown"


def test_a_charts_version_is_named() -> None:
    old, new = ({"chart": "karpenter", "version": version} for version in ("1.14.0", "1.15.0"))
    outcome, text = said(reviewed(step("update", "kubernetes:helm.sh/v3:Release", "chart", old, new)))
    assert outcome == "unknown"
    assert "chart `karpenter` from version 1.14.0 to 1.15.0" in text


def test_a_replaced_cluster_ends_everything() -> None:
    change = step("replace", "aws:eks/cluster:Cluster", "cluster", {"name": "a"}, {"name": "b"})
    assert said(reviewed(change))[0] == "ends"


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([target("8", "9", "update")], 0),
        ([target("8", "6", "update")], EXIT_STATUS["ends"]),
        ([target("8", UNKNOWN, "update")], EXIT_STATUS["unknown"]),
    ],
)
def test_the_exit_status_follows_the_verdict(tmp_path: Path, steps: list[Any], status: int) -> None:
    file = tmp_path / "dev.json"
    file.write_text(json.dumps({"steps": steps}))
    arguments = ["review", "--preview", str(file), "--out", str(tmp_path / "comment.md")]
    assert main([*arguments, "--strict"]) == status
    assert main(arguments) == 0


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_truncated_json_is_a_failed_preview(tmp_path: Path, cut: int) -> None:
    file, out = tmp_path / "dev.json", tmp_path / "comment.md"
    file.write_text(json.dumps({"steps": [target("8", "6", "update")]})[:cut])
    assert main(["review", "--preview", str(file), "--out", str(out), "--strict"]) == EXIT_STATUS["unknown"]
    text = out.read_text("utf-8")
    assert "Not known whether workers end in `dev`." in text
    assert "cannot be read (invalid JSON" in text
