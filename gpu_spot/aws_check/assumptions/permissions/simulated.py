"""Conditions of this stack's policies in IAM's policy simulator, which is free of charge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.aws_check.roles import document
from infra.iam.tenant_statements import PRINCIPAL_TAG

_EC2: Final = "Service authorization reference, Amazon EC2"
_ACCOUNT: Final = "us-east-1:123456789012"
_STACK: Final = "aws:ResourceTag/gpu-spot:stack"
ConditionValues = Mapping[str, Sequence[str]]


def _decide(
    test_bed: AwsTestBed,
    statements: Sequence[Mapping[str, Any]],
    action: str,
    arn: str,
    keys: ConditionValues,
) -> str:
    """Return the simulator's decision; a key with several values is a list."""
    entries = [
        {
            "ContextKeyName": key,
            "ContextKeyValues": list(values),
            "ContextKeyType": "stringList" if len(values) > 1 else "string",
        }
        for key, values in keys.items()
    ]
    response = test_bed.clients("iam").simulate_custom_policy(
        PolicyInputList=[document(statements)],
        ActionNames=[action],
        ResourceArns=[arn],
        ContextEntries=entries,
    )
    return str(response["EvaluationResults"][0]["EvalDecision"])


def _simulated(
    name: str,
    statement: str,
    source: str,
    used_by: str,
    policy: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    allowed: tuple[str, ConditionValues],
    denied: tuple[str, ConditionValues],
    falsified_by: str = "the other request is allowed, or this stack's is denied",
) -> Assumption:
    """Return an assumption: a policy allows one request (resource, condition keys) and not another."""
    statements = [policy] if isinstance(policy, Mapping) else list(policy)
    action = str(statements[0]["Action"])

    def test(test_bed: AwsTestBed) -> str:
        of_stack = _decide(test_bed, statements, action, *allowed)
        of_other = _decide(test_bed, statements, action, *denied)
        if of_stack != "allowed" or of_other == "allowed":
            raise Falsified(f"{json.dumps(allowed)}: {of_stack}, {json.dumps(denied)}: {of_other}")
        return f"{action}: allowed, the other request: {of_other}"

    return Assumption(name, statement, source, used_by, falsified_by, test)


def _bound(action: str, resource: str, operator: str, key: str, value: Any) -> dict[str, Any]:
    return {"Action": action, "Resource": resource, "Condition": {operator: {key: value}}}


def _on(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{_ACCOUNT}:{resource}"


_FLEET: Final = _on("ec2", "spot-fleet-request/sfr-0123")
_INSTANCE: Final = _on("ec2", "instance/i-0123456789abcdef0")
_VOLUME: Final = _on("ec2", "volume/vol-0123456789abcdef0")
_TEMPLATE: Final = _on("ec2", "launch-template/lt-0123456789abcdef0")
_CLUSTER_TAG: Final = "aws:RequestTag/eks:eks-cluster-name"
_SESSION: Final = "session/${aws:userid}-*"

SIMULATED: Final = (
    _simulated(
        "tags-of-fleets-bound-permissions",
        "ModifySpotFleetRequest can be restricted by a tag of the fleet.",
        _EC2,
        "infra/iam/controller_statements.py",
        _bound("ec2:ModifySpotFleetRequest", _on("ec2", "spot-fleet-request/*"), "StringEquals", _STACK, "a"),
        (_FLEET, {_STACK: ["a"]}),
        (_FLEET, {_STACK: ["b"]}),
    ),
    _simulated(
        "tags-of-groups-bound-launches",
        "LaunchInstances can be restricted by a tag of the group.",
        "Service authorization reference, Amazon EC2 Auto Scaling",
        "infra/iam/controller_statements.py",
        _bound("autoscaling:LaunchInstances", "*", "StringEquals", _STACK, "a"),
        (_on("autoscaling", "autoScalingGroup:u:autoScalingGroupName/gpu-spot-a-x"), {_STACK: ["a"]}),
        (_on("autoscaling", "autoScalingGroup:u:autoScalingGroupName/other"), {}),
    ),
    _simulated(
        "tags-of-templates-bound-fleets",
        "CreateFleet can be restricted by a tag of the launch template.",
        _EC2,
        "infra/iam/controller_statements.py",
        _bound("ec2:CreateFleet", _on("ec2", "launch-template/*"), "StringEquals", _STACK, "a"),
        (_TEMPLATE, {_STACK: ["a"]}),
        (_TEMPLATE, {_STACK: ["b"]}),
    ),
    _simulated(
        "both-tags-bound-terminations",
        "TerminateInstances can require two tags of the instance.",
        _EC2,
        "infra/iam/controller_statements.py",
        {
            "Action": "ec2:TerminateInstances",
            "Resource": _on("ec2", "instance/*"),
            "Condition": {
                "StringEquals": {_STACK: "a", "aws:ResourceTag/gpu-spot:side": "primary"},
            },
        },
        (_INSTANCE, {_STACK: ["a"], "aws:ResourceTag/gpu-spot:side": ["primary"]}),
        (_INSTANCE, {_STACK: ["a"], "aws:ResourceTag/gpu-spot:side": ["fallback"]}),
    ),
    _simulated(
        "tags-at-creation",
        "CreateTags can be restricted to resources that the same request creates (ec2:CreateAction).",
        'EC2 user guide, "Grant permission to tag Amazon EC2 resources during creation"',
        "userdata/agent/aws/permissions.py",
        _bound("ec2:CreateTags", "*", "StringEquals", "ec2:CreateAction", ["CreateVolume", "CreateSnapshot"]),
        (_VOLUME, {"ec2:CreateAction": ["CreateVolume"]}),
        (_VOLUME, {}),
    ),
    _simulated(
        "volumes-with-the-jobs-tag",
        "CreateVolume can require tags of the request.",
        _EC2,
        "userdata/agent/aws/permissions.py",
        _bound("ec2:CreateVolume", "*", "StringEquals", "aws:RequestTag/gpu-spot:job", "a"),
        (_VOLUME, {"aws:RequestTag/gpu-spot:job": ["a"]}),
        (_VOLUME, {}),
    ),
    _simulated(
        "only-these-tag-keys",
        "ForAllValues:StringEquals on aws:TagKeys allows only the listed keys.",
        'IAM user guide, "Multivalued context keys"',
        "userdata/agent/aws/permissions.py",
        _bound(
            "ec2:CreateTags",
            "*",
            "ForAllValues:StringEquals",
            "aws:TagKeys",
            ["gpu-spot:state", "gpu-spot:token"],
        ),
        (_VOLUME, {"aws:TagKeys": ["gpu-spot:state", "gpu-spot:token"]}),
        (_VOLUME, {"aws:TagKeys": ["gpu-spot:state", "gpu-spot:job"]}),
    ),
    _simulated(
        "six-characters-of-secrets",
        "Six question marks after a secret's name match its ARN, and no secret with a longer name.",
        'Secrets Manager guide, "IAM policy examples"',
        "userdata/agent/aws/permissions.py",
        {
            "Action": "secretsmanager:GetSecretValue",
            "Resource": _on("secretsmanager", "secret:name-??????"),
        },
        (_on("secretsmanager", "secret:name-a1B2c3"), {}),
        (_on("secretsmanager", "secret:name-other-a1B2c3"), {}),
    ),
    _simulated(
        "tags-of-instances-bound-interruptions",
        "SendSpotInstanceInterruptions can be restricted by tags of the instance.",
        f'{_EC2}; FIS user guide, "Actions reference"',
        "infra/iam/drill_statements.py",
        _bound("ec2:SendSpotInstanceInterruptions", _on("ec2", "instance/*"), "StringEquals", _STACK, "a"),
        (_INSTANCE, {_STACK: ["a"]}),
        (_INSTANCE, {_STACK: ["b"]}),
    ),
    _simulated(
        "tags-of-hosts-bound-sessions",
        "StartSession can be restricted by tags of the instance (ssm:resourceTag).",
        'Systems Manager guide, "Sample IAM policies for Session Manager"',
        "infra/iam/tenant_statements.py",
        _bound("ssm:StartSession", "*", "StringEquals", "ssm:resourceTag/gpu-spot:group", "a"),
        (_INSTANCE, {"ssm:resourceTag/gpu-spot:group": ["a"]}),
        (_INSTANCE, {"ssm:resourceTag/gpu-spot:group": ["b"]}),
    ),
    _simulated(
        "session-needs-its-document",
        "BoolIfExists on ssm:SessionDocumentAccessCheck denies a session without an allowed document.",
        'Systems Manager guide, "Enforce a session document permission check"',
        "infra/iam/tenant_statements.py",
        _bound("ssm:StartSession", "*", "BoolIfExists", "ssm:SessionDocumentAccessCheck", "true"),
        (_INSTANCE, {"ssm:SessionDocumentAccessCheck": ["true"]}),
        (_INSTANCE, {"ssm:SessionDocumentAccessCheck": ["false"]}),
    ),
    _simulated(
        "own-sessions",
        "${aws:userid} in a resource matches only sessions of the caller.",
        'Systems Manager guide, "Sample IAM policies for Session Manager"',
        "infra/iam/tenant_statements.py",
        {"Action": "ssm:TerminateSession", "Resource": _on("ssm", _SESSION)},
        (_on("ssm", "session/me-0123"), {"aws:userid": ["me"]}),
        (_on("ssm", "session/them-0123"), {"aws:userid": ["me"]}),
    ),
    _simulated(
        "own-channels",
        "OpenDataChannel can be restricted to sessions of the caller.",
        'Systems Manager guide, "Sample IAM policies for Session Manager"; no authorization reference',
        "infra/iam/tenant_statements.py",
        {"Action": "ssmmessages:OpenDataChannel", "Resource": _on("ssm", _SESSION)},
        (_on("ssm", "session/me-0123"), {"aws:userid": ["me"]}),
        (_on("ssm", "session/them-0123"), {"aws:userid": ["me"]}),
    ),
    _simulated(
        "tags-of-principals-bound-sessions",
        "StartSession can be restricted by a tag of the caller.",
        'IAM user guide, "AWS global condition context keys", aws:PrincipalTag',
        "infra/iam/tenant_statements.py",
        _bound("ssm:StartSession", "*", "StringEquals", f"aws:PrincipalTag/{PRINCIPAL_TAG}", "a/b/c"),
        (_INSTANCE, {f"aws:PrincipalTag/{PRINCIPAL_TAG}": ["a/b/c"]}),
        (_INSTANCE, {f"aws:PrincipalTag/{PRINCIPAL_TAG}": ["a/b/d"]}),
    ),
    _simulated(
        "key-through-services",
        "StringLike on kms:ViaService allows a key's use through the listed services only.",
        'KMS guide, "AWS KMS condition keys", kms:ViaService',
        "infra/iam/statement.py",
        _bound("kms:Decrypt", "*", "StringLike", "kms:ViaService", ["ec2.us-east-1.*"]),
        (_on("kms", "key/k"), {"kms:ViaService": ["ec2.us-east-1.amazonaws.com"]}),
        (_on("kms", "key/k"), {"kms:ViaService": ["s3.us-east-1.amazonaws.com"]}),
    ),
    _simulated(
        "grants-for-services",
        "kms:GrantIsForAWSResource allows grants that an AWS service creates, and no others.",
        'KMS guide, "AWS KMS condition keys", kms:GrantIsForAWSResource',
        "infra/iam/statement.py",
        _bound("kms:CreateGrant", "*", "Bool", "kms:GrantIsForAWSResource", "true"),
        (_on("kms", "key/k"), {"kms:GrantIsForAWSResource": ["true"]}),
        (_on("kms", "key/k"), {}),
    ),
    _simulated(
        "one-role-for-fleets",
        "A Deny with NotResource leaves PassRole for the named role only.",
        'IAM user guide, "IAM JSON policy elements: NotResource"',
        "infra/iam/aws_service_statements.py",
        (
            {"Action": "iam:PassRole", "Resource": "*"},
            {"Effect": "Deny", "Action": "iam:PassRole", "NotResource": "arn:aws:iam::123456789012:role/a"},
        ),
        ("arn:aws:iam::123456789012:role/a", {}),
        ("arn:aws:iam::123456789012:role/b", {}),
    ),
    _simulated(
        "namespace-of-metrics",
        "PutMetricData can be restricted to a namespace.",
        'CloudWatch guide, "Using condition keys to limit access to CloudWatch namespaces"',
        "infra/iam/instance_statements.py",
        _bound("cloudwatch:PutMetricData", "*", "StringEquals", "cloudwatch:namespace", "gpu-spot/instances"),
        ("*", {"cloudwatch:namespace": ["gpu-spot/instances"]}),
        ("*", {"cloudwatch:namespace": ["gpu-spot"]}),
    ),
    _simulated(
        "access-points-bound-mounts",
        "ClientMount can be restricted to an access point.",
        'EFS user guide, "Using IAM to control access to file systems"',
        "infra/iam/instance_statements.py",
        _bound(
            "elasticfilesystem:ClientMount", "*", "StringEquals", "elasticfilesystem:AccessPointArn", ["a"]
        ),
        (_on("elasticfilesystem", "file-system/fs-1"), {"elasticfilesystem:AccessPointArn": ["a"]}),
        (_on("elasticfilesystem", "file-system/fs-1"), {}),
    ),
    _simulated(
        "prefix-of-a-dataset",
        "ListBucket can be restricted to a prefix.",
        'S3 user guide, "Bucket policy examples using condition keys", s3:prefix',
        "userdata/agent/aws/permissions.py",
        _bound("s3:ListBucket", "arn:aws:s3:::b", "StringLike", "s3:prefix", "data/*"),
        ("arn:aws:s3:::b", {"s3:prefix": ["data/set/"]}),
        ("arn:aws:s3:::b", {"s3:prefix": ["other/"]}),
    ),
    _simulated(
        "karpenter-tags-bound-launches",
        "RunInstances can require Karpenter's tags of the request.",
        'karpenter.sh, "CloudFormation" (1.14)',
        "infra/iam/cluster_statements.py",
        _bound("ec2:RunInstances", _on("ec2", "instance/*"), "StringEquals", _CLUSTER_TAG, "a"),
        (_INSTANCE, {_CLUSTER_TAG: ["a"]}),
        (_INSTANCE, {_CLUSTER_TAG: ["b"]}),
    ),
)
