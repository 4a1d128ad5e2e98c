"""The IAM policy for ``gpu-spot status``: read-only, limited to the stack where IAM allows it."""

from __future__ import annotations

from typing import Any, Final

from contracts import names

_ANY: Final = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeScalingActivities",
    "dynamodb:ListTables",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeSpotFleetInstances",
    "ec2:DescribeSpotFleetRequestHistory",
    "ec2:DescribeSpotFleetRequests",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeSpotPriceHistory",
    "logs:DescribeLogGroups",
    "sts:GetCallerIdentity",
)
"""Actions without resource-level permissions (Service Authorization Reference), or with unpredictable ids."""


def policy(stack: str, region: str) -> dict[str, Any]:
    """Return the policy document that allows ``gpu-spot status`` on a stack."""
    root = f"arn:*:ssm:{region}:*:parameter{names.parameter_root(stack)}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow("Look", _ANY, "*"),
            _allow("ReadGroups", ("ssm:GetParametersByPath",), root, f"{root}/*"),
            _allow(
                "ReadTables",
                ("dynamodb:BatchGetItem", "dynamodb:GetItem"),
                *(
                    f"arn:*:dynamodb:{region}:*:table/gpu-spot-{stack}-{short}-*"
                    for short in ("jobs", "memory", "registry")
                ),
            ),
            _allow(
                "FindUnknownWriters",
                ("dynamodb:Scan",),
                f"arn:*:dynamodb:{region}:*:table/gpu-spot-{stack}-registry-*",
            ),
            _allow(
                "ReadAlarms",
                ("cloudwatch:DescribeAlarms", "cloudwatch:ListTagsForResource"),
                f"arn:*:cloudwatch:{region}:*:alarm:*",
            ),
            _allow(
                "ReadDecisions",
                ("logs:FilterLogEvents",),
                f"arn:*:logs:{region}:*:log-group:gpu-spot-{stack}-controller-*",
            ),
        ],
    }


def _allow(sid: str, actions: tuple[str, ...], *resources: str) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
