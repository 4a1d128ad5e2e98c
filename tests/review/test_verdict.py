"""What the engine may write, and what the verdict says of it: never a traceback, never silence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_spot.cli import main
from gpu_spot.review.comment import comment
from gpu_spot.review.effects.consequences import CONSEQUENCES, TYPES, Severity
from gpu_spot.review.effects.workers import assess_preview
from gpu_spot.review.environments import ReviewedEnvironment, review_environments
from gpu_spot.review.preview import EngineStep, Preview, read
from gpu_spot.review.verdict import EXIT_STATUS, verdict_of
from tests.infra.declared import ROOT
from tests.oracles.replacements import FORCES_NEW

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": '"hunter2"'}
FAILED = {"diagnostics": [{"severity": "error", "message": "boom"}]}
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


def parameter(op: str, leaf: str, old: Any, new: Any, **more: Any) -> dict[str, Any]:
    """Return a step of a parameter of the group; an old value of None is not there."""
    before, after = ({"insecureValue": value, "tags": TAGS} for value in (old, new))
    changed = (None if old is None else before, after)
    return step(op, "aws:ssm/parameter:Parameter", f"web-{leaf}", *changed, **more)


def target(value: Any = "8", new: Any = None, op: str = "same") -> dict[str, Any]:
    return parameter(op, "target", value, value if new is None else new)


def deleted(side: str) -> dict[str, Any]:
    """Return a step that deletes a group on this side of the service."""
    tags = [{"key": "gpu-spot:group", "value": "web"}, {"key": "gpu-spot:side", "value": side}]
    return step("delete", "aws:autoscaling/group:Group", "g", {"tags": tags})


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
    group = deleted("primary")
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


def released(old: dict[str, Any] | None, new: dict[str, Any] | str) -> dict[str, Any]:
    after = new if isinstance(new, str) else json.dumps(new)
    if old is None:
        return parameter("create", "release", None, after)
    return parameter("update", "release", json.dumps(old), after, diffReasons=["insecureValue"])


def health(most_at_once: int) -> dict[str, Any]:
    text = json.dumps({"graceSeconds": 1, "stuckSeconds": 1, "mostAtOnce": most_at_once, "digest": 7})
    return parameter("same", "health", text, text)


PROCESS = {"image": "", "command": ["serve"], "environment": {}, "perSlot": 1}
OTHER = PROCESS | {"command": ["serve", "--fast"]}


@pytest.mark.parametrize(
    ("old", "new", "percent", "outcome"),
    [
        (PROCESS, OTHER, 20, "ends"),
        (PROCESS, UNKNOWN, 20, "ends"),
        (PROCESS, OTHER, 0, "nothing"),
        (PROCESS, UNKNOWN, 0, "nothing"),
        (PROCESS, PROCESS | {"image": "ocr@sha256:1"}, 20, "nothing"),
        (None, PROCESS, 20, "nothing"),
    ],
)
def test_a_release_that_only_new_instances_take_ends_nothing(
    old: dict[str, Any] | None, new: Any, percent: int, outcome: str
) -> None:
    """As the health checker's `_follow_desired` has it."""
    found, text = said(reviewed(target(), health(percent), released(old, new)))
    assert found == outcome
    assert ("restarted" in text) == (outcome == "ends")
    assert ("only for new instances" in text) == (outcome == "nothing")


def test_an_unknown_configuration_is_not_known() -> None:
    config = parameter("update", "config", '{"max": 8}', UNKNOWN, diffReasons=["insecureValue"])
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
    outcome, _ = said(reviewed(step(op, "aws:autoscaling/group:Group", "web-primary", old, new)))
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
    assert said(reviewed(target(), **FAILED))[0] == "unknown"
    outcome, text = said(reviewed(target("8", "6", "update"), **FAILED))
    assert outcome == "ends"
    assert "At least 2 workers end in `dev` (web): how many in all is not known." in text


def scaler(**settings: Any) -> dict[str, Any]:
    return parameter("same", "scaling", json.dumps(settings), json.dumps(settings))


def test_an_emptied_group_has_no_worker_that_ends() -> None:
    fallback = deleted("fallback")
    for change in (fallback, parameter("update", "release", "1", "2")):
        assert said(reviewed(target("0"), change))[0] == "nothing"
        assert said(reviewed(target("2"), change))[0] == "ends"
    assert said(reviewed(target("0"), fallback, **FAILED))[0] == "unknown"


def test_how_many_a_scaler_runs_is_not_known() -> None:
    """The state has the target as it was declared, which the scaler has changed since."""
    unknown, counted = (
        said(reviewed(target("0"), scaler(min=1, dryRun=dry), deleted("primary"))) for dry in (False, True)
    )
    assert "Workers end in `dev` (web): how many in all is not known." in unknown[1]
    assert counted[0] == "nothing"


def test_protection_removed_from_unchanged_resources_is_named() -> None:
    unprotected = step("same", "aws:s3/bucket:Bucket", "data", {}, {})
    unprotected["oldState"]["protect"] = True
    assert "Bucket `data`" in said(reviewed(unprotected))[1]


def manifest(kind: str, spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "web", "labels": {"gpu-spot/group": "web"}}, "spec": spec}


QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
DEPLOYMENT, JOB, POOL = (
    f"kubernetes:{token}" for token in ("apps/v1:Deployment", "batch/v1:Job", "karpenter.sh/v1:NodePool")
)


@pytest.mark.parametrize(
    ("op", "type_", "old", "new", "outcome", "words"),
    [
        ("update", DEPLOYMENT, {"template": 1}, {"template": 2}, "ends", "all pods replaced"),
        ("update", DEPLOYMENT, {"template": 1}, {"template": UNKNOWN}, "ends", "all pods replaced"),
        ("update", DEPLOYMENT, {"replicas": 3}, {"replicas": 2}, "unknown", "changes (spec.replicas)"),
        ("update", DEPLOYMENT, {"paused": True}, {"paused": False}, "nothing", ""),
        ("update", DEPLOYMENT, {"replicas": 3}, UNKNOWN, "unknown", "changes (spec)"),
        ("delete", DEPLOYMENT, {}, None, "ends", "all workers ended"),
        ("replace", JOB, {"template": 1}, {"template": 2}, "ends", "Job `it` is replaced"),
        ("delete", JOB, {}, None, "ends", "Job `it` is deleted"),
        ("update", JOB, {"suspend": False}, {"suspend": True}, "unknown", "changes (spec.suspend)"),
        ("update", POOL, {"limits": 1}, {"limits": 2}, "nothing", ""),
        ("update", POOL, {"template": 1}, {"template": 2}, "unknown", "whether its pods stay"),
        ("delete", POOL, {}, None, "ends", "NodePool `it` is deleted"),
        ("update", "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", {"a": 1}, {"a": 2}, "unknown", "(spec.a)"),
        ("update", "kubernetes:helm.sh/v3:Release", {"a": 1}, {"a": 2}, "unknown", "may end workers"),
        ("create", "kubernetes:keda.sh/v1alpha1:ScaledObject", None, {}, "unknown", "is created"),
        ("update", QUEUE, {"nominalQuota": "9500m"}, {"nominalQuota": "10"}, "nothing", ""),
        ("update", QUEUE, {"nominalQuota": "10"}, {"nominalQuota": "9500m"}, "unknown", "nominalQuota"),
        ("update", QUEUE, {"nominalQuota": 1}, {"nominalQuota": UNKNOWN}, "unknown", "nominalQuota"),
    ],
)
def test_objects_of_a_cluster_end_pods_or_are_to_be_looked_at(
    op: str, type_: str, old: Any, new: Any, outcome: str, words: str
) -> None:
    kind = type_.rpartition(":")[2]
    states = [None if spec is None else manifest(kind, spec) for spec in (old, new)]
    unchanged = step("same", DEPLOYMENT, "web", manifest("Deployment", {}), manifest("Deployment", {}))
    found, text = said(reviewed(unchanged, step(op, type_, "it", *states)))
    assert found == outcome
    assert words in text


@pytest.mark.parametrize("op", ["update", "replace", "delete"])
@pytest.mark.parametrize(
    "kind", ["lb/loadBalancer:LoadBalancer", "lb/listener:Listener", "lb/targetGroup:TargetGroup"]
)
def test_a_changed_address_ends_no_worker_and_is_to_be_looked_at(op: str, kind: str) -> None:
    new = None if op == "delete" else {"port": 2, "tags": TAGS}
    outcome, text = said(reviewed(target(), step(op, f"aws:{kind}", "a", {"port": 1, "tags": TAGS}, new)))
    assert outcome == "nothing"
    assert "look whether callers still reach the service" in text
    assert "Review `dev`" in text
    new_one = step("create", f"aws:{kind}", "a", None, {"tags": TAGS})
    assert "look whether" not in said(reviewed(target(), new_one))[1]


@pytest.mark.parametrize(
    ("after", "names"), [("[2]", "of `a`"), ("[]", "of `a`"), (UNKNOWN, "that are known")]
)
def test_changed_tenants_may_be_replaced(after: str, names: str) -> None:
    key = {"key": "hosts/lab/tenants.json", "tags": {"gpu-spot:group": "lab"}}
    old = {**key, "content": json.dumps({"tenants": [{"name": "a", "uid": 1}, {"name": "b"}]})}
    tenants = [{"name": "a", "uid": uid} for uid in json.loads(after)] if after != UNKNOWN else []
    content = after if after == UNKNOWN else json.dumps({"tenants": [*tenants, {"name": "b"}]})
    change = step("update", "aws:s3/bucketObjectv2:BucketObjectv2", "list", old, {**key, "content": content})
    outcome, text = said(reviewed(target(), change))
    assert outcome == "unknown"
    assert f"has changes {names}" in text


def test_a_replaced_cluster_ends_everything() -> None:
    change = step("replace", "aws:eks/cluster:Cluster", "cluster", {"name": "a"}, {"name": "b"})
    assert said(reviewed(change))[0] == "ends"


@pytest.mark.parametrize("digest", [FAILED, {"arguments": ["--target", "x"]}, {}])
def test_what_was_not_previewed_is_nowhere_called_unchanged(digest: dict[str, Any]) -> None:
    """The comment said "Data: unchanged", "passed" and "no change" of previews that failed or left out."""
    environments = reviewed(*([target()] if digest else []), **digest)
    text = comment(environments)
    assert not re.search("unchanged|passed|no change|not affected", text)
    assert text.count("look") == 6
    assert environments[0].meaning.untouched == ()
    assert "Data: **look**" in comment([])


@pytest.mark.parametrize(
    ("type_", "key", "worst", "says"),
    [
        ("efs/fileSystem:FileSystem", "performanceMode", "LOST", "is replaced, **with all files**"),
        ("mq/broker:Broker", "subnetIds", "LOST", "is replaced, **with its messages**"),
        ("dynamodb/table:Table", "hashKey", "LOST", "is replaced, **with the controller's state**"),
        ("s3/bucket:Bucket", "bucket", "LOST", "is replaced; AWS rejects this while it is not empty"),
        ("cloudwatch/logGroup:LogGroup", "name", "UNKNOWN", "is replaced, with its logs"),
        ("autoscaling/group:Group", "name", "ENDS", "**8 workers of the primary group are terminated**"),
    ],
)
def test_a_replacement_that_no_row_has_deletes_the_old_resource(
    type_: str, key: str, worst: str, says: str
) -> None:
    """The comment said "Data: unchanged" of files, messages and logs that a replacement takes along."""
    tags = {"tags": GROUP_TAGS} if worst == "ENDS" else {}
    forced = {"detailedDiff": {key: {"kind": "update-replace"}}}
    change = step("replace", f"aws:{type_}", "it", {key: "a", **tags}, {key: "b", **tags}, **forced)
    environments = reviewed(target(), change)
    assert environments[0].meaning.worst is Severity[worst]
    text = said(environments)[1]
    assert says in text
    assert worst == "ENDS" or "Data: unchanged" not in text
    change["oldState"]["retainOnDelete"] = True
    assert says not in said(reviewed(target(), change))[1]


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
    assert "cannot be read (not valid JSON" in text


PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8").split("## What is replaced")[1].split("\n## ")[0]
ROWS = [re.findall(r"`([A-Z]\w+)\.(\w+)`", row) for row in PAGE.splitlines() if row.startswith("| ")]
ENDING = [row for row in PAGE.splitlines() if "workers end" in row and re.search(r"`[A-Z]\w+\.\w+`", row)]
BY_ROW = sorted({pair for row in ROWS for pair in row})


def replaced(kind: str, key: str) -> EngineStep:
    type_ = TYPES.get(kind, f"aws:x/y:{kind}")
    return EngineStep("replace", type_, "it", {key: 1}, {key: 2}, (key,), (key,))


def test_the_table_has_exactly_the_replacements_of_the_page() -> None:
    table = {(one.kind, key) for one in CONSEQUENCES if one.op == "replace" for key in one.inputs}
    assert table == set(BY_ROW)


@pytest.mark.parametrize(("kind", "key"), BY_ROW)
def test_severity_matches_the_page(kind: str, key: str) -> None:
    worst = assess_preview(Preview("dev", (replaced(kind, key),))).worst
    ends = any(f"`{kind}.{key}`" in row for row in ENDING)
    lost = any(
        f"`{kind}.{key}`" in row
        and ("lost**" in row or "cannot be changed**" in row or "second stack" in row)
        for row in PAGE.splitlines()
    )
    assert worst is Severity.LOST if lost else (worst is Severity.ENDS) == ends


def test_the_effect_of_an_unlisted_replacement_is_unknown() -> None:
    unknown = assess_preview(Preview("dev", (replaced("Thing", "engine"),)))
    assert unknown.worst is Severity.UNKNOWN
    assert unknown.effects[0].words == "may end workers: not known"
    assert "is replaced because of engine" in unknown.effects[0].details[0]
    kinds = {one.kind for one in CONSEQUENCES if one.op == "replace"}
    assert kinds - {"Cluster", "NatGateway"} <= FORCES_NEW.keys()


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ("primary", "of the primary group are terminated"),
        ("fallback", "all On-Demand workers are terminated at once"),
    ],
)
def test_a_deleted_group_ends_its_own_role(side: str, words: str) -> None:
    [reviewed_] = reviewed(deleted(side))
    [effect] = reviewed_.meaning.effects
    assert (effect.severity, effect.group) == (Severity.ENDS, "web")
    assert words in effect.words
