"""IAM: conditions on tags, as the policies of this stack have them."""

from __future__ import annotations

import json
from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import Falsified, Lab

_NO_SIMULATION: Final = "moto has no SimulateCustomPolicy"


def _decision(lab: Lab, statement: dict[str, Any], arn: str, key: str, value: str, kind: str) -> str:
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}
    found = lab.clients("iam").simulate_custom_policy(
        PolicyInputList=[json.dumps(policy)],
        ActionNames=[statement["Action"]],
        ResourceArns=[arn],
        ContextEntries=[{"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": kind}],
    )
    return str(found["EvaluationResults"][0]["EvalDecision"])


def _conditional(lab: Lab, action: str, arn: str, operator: str, key: str, kind: str = "string") -> str:
    """Try a condition with the value that it asks for and with another."""
    statement = {"Action": action, "Resource": arn, "Condition": {operator: {key: ["mine"]}}}
    own = _decision(lab, statement, arn, key, "mine", kind)
    other = _decision(lab, statement, arn, key, "theirs", kind)
    if (own, other) != ("allowed", "implicitDeny"):
        raise Falsified(f"with the value {own}, with another {other}")
    return "allowed with the value, denied with another"


@assumes(
    'Auto Scaling guide, "Identity-based policy examples"',
    "infra/iam/controller_statements.py",
    "another group is allowed, or the own denied",
    unplayable=_NO_SIMULATION,
)
def tags_of_groups_bound_permissions(lab: Lab) -> str:
    """SetDesiredCapacity can be allowed by the tag of the group."""
    arn = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:*:autoScalingGroupName/gpu-spot-x"
    return _conditional(
        lab, "autoscaling:SetDesiredCapacity", arn, "StringEquals", "aws:ResourceTag/gpu-spot:stack"
    )


@assumes(
    "Service authorization reference, Amazon EC2",
    "userdata/agent/aws/permissions.py",
    "another volume is allowed, or the own denied",
    unplayable=_NO_SIMULATION,
)
def tags_of_volumes_bound_permissions(lab: Lab) -> str:
    """DeleteVolume can be allowed by the tag of the volume."""
    arn = "arn:aws:ec2:us-east-1:123456789012:volume/vol-0123456789abcdef0"
    return _conditional(lab, "ec2:DeleteVolume", arn, "StringEquals", "aws:ResourceTag/gpu-spot:job")


@assumes(
    'DynamoDB guide, "Using IAM policy conditions for fine-grained access control"',
    "userdata/agent/aws/permissions.py",
    "another key is allowed, or the own denied",
    unplayable=_NO_SIMULATION,
)
def keys_of_items_bound_permissions(lab: Lab) -> str:
    """UpdateItem can be allowed for items of one key."""
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/registry"
    key, operator = "dynamodb:LeadingKeys", "ForAllValues:StringEquals"
    return _conditional(lab, "dynamodb:UpdateItem", arn, operator, key, "stringList")
