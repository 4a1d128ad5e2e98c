"""Data, reach, alarms and control: what becomes less is never silent, nor what no table knows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from contracts.agent.config import Volume
from gpu_spot.review.boot_data import DEFAULT_VOLUME_GIB
from gpu_spot.review.comment import comment
from gpu_spot.review.effects import axes
from gpu_spot.review.effects.axes import KINDS, left_behind
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.groups import find_groups
from gpu_spot.review.effects.permissions import compare_policies
from gpu_spot.review.effects.workers import Meaning, assess_preview
from gpu_spot.review.environments import review_environments
from gpu_spot.review.preview import EngineStep, Preview
from gpu_spot.review.values import SECRET, UNKNOWN
from tests.infra.declared import shipped
from tests.oracles.replacements import REPLACED_BY
from tests.review.changes import STACKS
from tests.review.engine_changes import engine_changes, is_silent

NAME = "gpu-spot-prod-it"
SECRET_VERSION = "secretsmanager/secretVersion:SecretVersion"


def meaning(*steps: EngineStep) -> Meaning:
    return assess_preview(Preview("prod", steps))


def changed(type_: str, key: str, old: Any, new: Any, op: str = "update", **more: Any) -> EngineStep:
    return EngineStep(op, f"aws:{type_}", NAME, {key: old, **more}, {key: new, **more}, (key,))


def test_the_table_has_every_declared_type_and_input() -> None:
    declared = {
        (item["type"], key)
        for stack in STACKS
        for item in shipped(stack).declared
        for key in item["inputs"]
        if item["type"].startswith("aws:") and item["type"] != axes.PARAMETER
    }
    missing = {
        f"{type_}.{key}"
        for type_, key in declared
        if type_ not in KINDS
        or not (key in KINDS[type_].rules or "" in KINDS[type_].rules or key in axes._NEUTRAL)
    }
    assert missing == set()
    assert REPLACED_BY.keys() - KINDS.keys() == {axes.PARAMETER}


ON = {"status": "Enabled"}
LESS = [
    ("sqs/queue:Queue", "messageRetentionSeconds", 345_600, 60),
    ("sqs/queue:Queue", "redrivePolicy", '{"maxReceiveCount": 5}', None),
    ("cloudwatch/logGroup:LogGroup", "retentionInDays", 90, 1),
    ("cloudwatch/logGroup:LogGroup", "retentionInDays", 0, 3653),
    ("cloudwatch/logGroup:LogGroup", "retentionInDays", None, 90),
    ("dynamodb/table:Table", "deletionProtectionEnabled", True, False),
    ("dynamodb/table:Table", "pointInTimeRecovery", {"enabled": True}, {"enabled": False}),
    ("dynamodb/table:Table", "pointInTimeRecovery", {"enabled": True}, None),
    ("s3/bucketVersioning:BucketVersioning", "versioningConfiguration", ON, {"status": "Suspended"}),
    ("s3/bucket:Bucket", "forceDestroy", None, True),
    ("secretsmanager/secret:Secret", "recoveryWindowInDays", 30, 0),
    ("kms/key:Key", "deletionWindowInDays", 30, 7),
    ("budgets/budget:Budget", "limitAmount", "100", "900"),
    ("budgets/budget:Budget", "notifications", [{"threshold": 80}], []),
    ("cloudwatch/eventRule:EventRule", "scheduleExpression", "rate(1 minute)", "rate(7 days)"),
    ("lambda/function:Function", "reservedConcurrentExecutions", None, 0),
    ("lambda/eventSourceMapping:EventSourceMapping", "enabled", True, False),
    ("ecr/repository:Repository", "imageScanningConfiguration", {"scanOnPush": True}, {"scanOnPush": False}),
    ("eks/cluster:Cluster", "enabledClusterLogTypes", ["api", "audit"], ["api"]),
    ("mq/broker:Broker", "logs", {"general": True}, {"general": False}),
]


@pytest.mark.parametrize(("type_", "key", "old", "new"), LESS)
def test_what_becomes_less_is_a_warning(type_: str, key: str, old: Any, new: Any) -> None:
    found = meaning(changed(type_, key, old, new))
    assert found.worst >= Severity.WATCH
    assert "shrinks" in {effect.direction for effect in found.effects}
    back = meaning(changed(type_, key, new, old))
    assert "shrinks" not in {effect.direction for effect in back.effects}
    hidden = meaning(changed(type_, key, old, UNKNOWN))
    assert "unknown" in {effect.direction for effect in hidden.effects}


ALARM = {"comparisonOperator": "GreaterThanThreshold", "metricName": "m"}


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("threshold", 1, 100),
        ("evaluationPeriods", 2, 60),
        ("datapointsToAlarm", 1, 60),
        ("period", 60, 3600),
        ("alarmActions", ["arn:topic"], []),
        ("actionsEnabled", None, False),
        ("metricName", "a", "b"),
        ("treatMissingData", "breaching", "ignore"),
    ],
)
def test_an_alarm_that_says_less_is_a_warning(key: str, old: Any, new: Any) -> None:
    type_ = "cloudwatch/metricAlarm:MetricAlarm"
    assert meaning(changed(type_, key, old, new, **ALARM)).worst is Severity.WATCH
    assert meaning(EngineStep("delete", f"aws:{type_}", NAME, ALARM)).worst is Severity.WATCH


def rule(days: int) -> list[dict[str, Any]]:
    return [{"id": "old", "status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": days}}]


def test_what_expires_earlier_shrinks_also_by_a_replacement() -> None:
    type_ = "s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
    assert meaning(changed(type_, "rules", rule(30), rule(1))).directions("data") == {"shrinks"}
    assert meaning(changed(type_, "rules", rule(1), rule(30))).directions("data") == {"grows"}
    new = EngineStep("create", f"aws:{type_}", NAME, {}, {"rules": rule(1)})
    assert meaning(new).directions("data") == {"shrinks"}
    bucket = EngineStep("create", "aws:s3/bucket:Bucket", NAME, {}, {})
    assert meaning(bucket, new).directions("data") == set()
    policies = [json.dumps({"rules": [{"selection": {"countNumber": count}}]}) for count in (30, 1)]
    images = changed("ecr/lifecyclePolicy:LifecyclePolicy", "policy", *policies, op="replace")
    assert meaning(images).directions("data") == {"shrinks"}


def allow(*actions: str, effect: str = "Allow") -> str:
    return json.dumps({"Statement": [{"Effect": effect, "Action": [*actions], "Resource": "arn:a"}]})


@pytest.mark.parametrize(
    ("old", "new", "direction"),
    [
        (allow("a:A"), allow("a:A", "a:B"), "grows"),
        (allow("a:A", "a:B"), allow("a:A"), "shrinks"),
        (allow("a:A"), allow("a:A"), ""),
        (allow("a:A"), allow("a:A", effect="Deny"), "shrinks"),
        (None, allow("a:A"), "grows"),
        (allow("a:A"), None, "shrinks"),
        (allow("a:A"), "no JSON", "unknown"),
        (allow("a:A"), UNKNOWN, "unknown"),
    ],
)
def test_policies_are_compared_by_what_they_allow(old: Any, new: Any, direction: str) -> None:
    assert compare_policies(old, new) == direction


INGRESS = "vpc/securityGroupIngressRule:SecurityGroupIngressRule"
TRUST = json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"Federated": "arn:github"}}]})


@pytest.mark.parametrize(
    "step",
    [
        EngineStep("create", f"aws:{INGRESS}", NAME, {}, {"fromPort": 1}),
        EngineStep("create", "aws:iam/role:Role", NAME, {}, {"assumeRolePolicy": TRUST}),
        EngineStep("create", "aws:lambda/permission:Permission", NAME, {}, {"principal": "*"}),
        changed("sqs/queuePolicy:QueuePolicy", "policy", allow("sqs:A"), allow("sqs:A", "sqs:B")),
        changed("ec2/launchTemplate:LaunchTemplate", "metadataOptions", {"httpTokens": "required"}, {}),
    ],
)
def test_reach_is_a_warning(step: EngineStep) -> None:
    found = meaning(step)
    assert found.worst >= Severity.WATCH
    assert found.directions("reach")


@pytest.mark.parametrize("op", ["create", "update", "replace", "delete", "mystery"])
@pytest.mark.parametrize("type_", ["gcp:sql/i:Instance", "aws:redshift/cluster:Cluster", "kubernetes:x/v1:Y"])
def test_an_unknown_type_is_to_be_looked_at(op: str, type_: str) -> None:
    found = meaning(EngineStep(op, type_, NAME, {"a": 1}, {"a": 2}, ("a",)))
    assert "unknown" in found.directions("alarms and control")


def test_no_change_of_the_engine_that_weakens_or_is_foreign_is_green() -> None:
    changes = list(engine_changes())
    assert len(changes) >= 300
    assert [change.title for change in changes if is_silent(change) and not change.may_be_silent] == []
    harmless = [change for change in changes if change.may_be_silent]
    assert [change.title for change in harmless if not is_silent(change)] == []


def test_an_unknown_input_is_to_be_looked_at() -> None:
    assert meaning(changed("sqs/queue:Queue", "newFeature", 1, 2)).directions("data") == {"unknown"}


def boot(size: int) -> dict[str, Any]:
    files = [{"path": "/etc/gpu-spot/agent.json", "content": json.dumps({"volume": {"sizeGib": size}})}]
    text = f"#cloud-config\n{json.dumps({'write_files': files})}"
    return {"userData": base64.b64encode(text.encode()).decode(), "tags": {"gpu-spot:group": "job"}}


@pytest.mark.parametrize("old", [SECRET, [{"username": "worker", "password": SECRET}]])
def test_a_changed_secret_is_to_be_looked_at_though_a_preview_shows_all_alike(old: Any) -> None:
    type_, key = ("mq/broker:Broker", "users") if isinstance(old, list) else (SECRET_VERSION, "secretString")
    assert "unknown" in meaning(changed(type_, key, old, old)).directions("reach")


def test_a_removed_job_names_the_volume_that_stays_and_a_volume_does_not_shrink() -> None:
    type_ = "aws:ec2/launchTemplate:LaunchTemplate"
    removed = EngineStep("delete", type_, "gpu-spot-prod-job", boot(100))
    [effect] = left_behind(find_groups([removed]), [removed])
    assert "its volume of 100 GiB and its snapshots stay" in effect.words
    inputs = {"insecureValue": "/runs on the file system", "tags": {"gpu-spot:group": "job"}}
    removed = EngineStep("delete", "aws:ssm/parameter:Parameter", "job-checkpoints", inputs)
    [effect] = left_behind(find_groups([removed]), [removed])
    assert "its checkpoints stay** in /runs on the file system" in effect.words
    smaller = EngineStep("update", type_, "gpu-spot-prod-job", boot(100), boot(20), ("userData",))
    assert "a volume does not shrink" in " ".join(effect.words for effect in meaning(smaller).effects)


def test_the_default_size_of_a_volume_is_the_agents() -> None:
    assert Volume().size_gib == DEFAULT_VOLUME_GIB


def test_the_first_line_says_all_axes_and_money() -> None:
    step = changed("sqs/queue:Queue", "messageRetentionSeconds", 345_600, 60)
    text = comment(review_environments([Preview("prod", (step,))], {"prod": "**$9 a month**, +$1 a month"}))
    assert text.splitlines()[1:3] == [
        "> [!WARNING]",
        "> **No running worker stops.** Data: **shrinks**. Reach: unchanged. Alarms and control: unchanged. "
        "Money: **$9 a month**, +$1 a month.<br>",
    ]
