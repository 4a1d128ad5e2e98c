"""IAM conditions on tags, as in the policies of this stack."""

from __future__ import annotations

import json
from typing import Any

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified


def _decision(
    test_bed: AwsTestBed, statement: dict[str, Any], arn: str, key: str, value: str, kind: str
) -> str:
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}
    response = test_bed.clients("iam").simulate_custom_policy(
        PolicyInputList=[json.dumps(policy)],
        ActionNames=[statement["Action"]],
        ResourceArns=[arn],
        ContextEntries=[{"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": kind}],
    )
    return str(response["EvaluationResults"][0]["EvalDecision"])


def _test_condition(
    test_bed: AwsTestBed, action: str, arn: str, operator: str, key: str, kind: str = "string"
) -> str:
    """Test a condition with the required value and with another value."""
    statement = {"Action": action, "Resource": arn, "Condition": {operator: {key: ["mine"]}}}
    with_value = _decision(test_bed, statement, arn, key, "mine", kind)
    with_other_value = _decision(test_bed, statement, arn, key, "theirs", kind)
    if (with_value, with_other_value) != ("allowed", "implicitDeny"):
        raise Falsified(f"with the required value {with_value}, with another {with_other_value}")
    return "allowed with the required value, denied with another"


@assumes(
    'Auto Scaling guide, "Identity-based policy examples"',
    "infra/iam/controller_statements.py",
    "another group is allowed, or the tagged group is denied",
)
def tags_of_groups_bound_permissions(test_bed: AwsTestBed) -> str:
    """SetDesiredCapacity can be restricted by a tag of the group."""
    arn = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:*:autoScalingGroupName/gpu-spot-x"
    return _test_condition(
        test_bed, "autoscaling:SetDesiredCapacity", arn, "StringEquals", "aws:ResourceTag/gpu-spot:stack"
    )


@assumes(
    "Service authorization reference, Amazon EC2",
    "userdata/agent/aws/permissions.py",
    "another volume is allowed, or the tagged volume is denied",
)
def tags_of_volumes_bound_permissions(test_bed: AwsTestBed) -> str:
    """DeleteVolume can be restricted by a tag of the volume."""
    arn = "arn:aws:ec2:us-east-1:123456789012:volume/vol-0123456789abcdef0"
    return _test_condition(test_bed, "ec2:DeleteVolume", arn, "StringEquals", "aws:ResourceTag/gpu-spot:job")


@assumes(
    'DynamoDB guide, "Using IAM policy conditions for fine-grained access control"',
    "userdata/agent/aws/permissions.py",
    "another key is allowed, or the required key is denied",
)
def keys_of_items_bound_permissions(test_bed: AwsTestBed) -> str:
    """UpdateItem can be restricted to items of one key."""
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/registry"
    key, operator = "dynamodb:LeadingKeys", "ForAllValues:StringEquals"
    return _test_condition(test_bed, "dynamodb:UpdateItem", arn, operator, key, "stringList")
