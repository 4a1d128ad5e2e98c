"""IAM evaluation: deny by default; wildcards, tags and set operators."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_on_moto.errors import LocalCloudError
from tests.iam import Request, allowed_actions, allows

GROUP = "arn:aws:autoscaling:us-west-2:1:autoScalingGroup:uuid:autoScalingGroupName/dev-a"


def policy(action: Any = "ec2:Describe*", resource: Any = "*", effect: str = "Allow", **more: Any) -> Any:
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": effect, "Action": action, "Resource": resource, **more}],
    }


@pytest.mark.parametrize(
    ("documents", "request_", "expected"),
    [
        ([], Request("ec2:DescribeInstances"), False),
        ([policy()], Request("ec2:DescribeInstances"), True),
        ([policy()], Request("EC2:describeinstances"), True),
        ([policy()], Request("ec2:TerminateInstances"), False),
        ([policy("s3:Get?bject")], Request("s3:GetObject"), True),
        ([policy("s3:*", "arn:aws:s3:::a/*")], Request("s3:GetObject", "arn:aws:s3:::a/b/c"), True),
        ([policy("s3:*", "arn:aws:s3:::a/*")], Request("s3:GetObject", "arn:aws:s3:::b/c"), False),
        ([policy("s3:*", "arn:aws:s3:::a.b")], Request("s3:GetObject", "arn:aws:s3:::aXb"), False),
        ([policy("s3:*", "arn:aws:s3:::a/*")], Request("s3:ListAllMyBuckets"), False),
        ([policy(), policy(effect="Deny")], Request("ec2:DescribeInstances"), False),
        ([policy(["a:B", "c:D"], ["x", GROUP])], Request("c:D", GROUP), True),
        ([policy("a:B", "arn:*:autoScalingGroupName/dev*")], Request("a:B", GROUP), False),
        ([policy("a:B", GROUP.replace("uuid", "*"))], Request("a:B", GROUP), True),
    ],
)
def test_actions_and_resources(documents: list[Any], request_: Request, expected: bool) -> None:
    assert allows(documents, request_) is expected


@pytest.mark.parametrize(
    ("condition", "context", "expected"),
    [
        ({"StringEquals": {"aws:ResourceTag/a": "1"}}, {"aws:resourcetag/a": ["1"]}, True),
        ({"StringEquals": {"aws:ResourceTag/a": "1"}}, {"aws:ResourceTag/a": ["2"]}, False),
        ({"StringEquals": {"aws:ResourceTag/a": "1"}}, {}, False),
        ({"StringEqualsIfExists": {"k": "1"}}, {}, True),
        ({"StringEquals": {"k": ["1", "2"]}}, {"k": ["2"]}, True),
        ({"StringEquals": {"k": "1*"}}, {"k": ["12"]}, False),
        ({"StringLike": {"k": "1*"}}, {"k": ["12"]}, True),
        ({"StringEquals": {"k": "1", "l": "2"}}, {"k": ["1"]}, False),
        ({"ForAllValues:StringEquals": {"k": ["1", "2"]}}, {"k": ["1", "2"]}, True),
        ({"ForAllValues:StringEquals": {"k": ["1"]}}, {"k": ["1", "2"]}, False),
        ({"ForAllValues:StringEquals": {"k": ["1"]}}, {}, True),
        ({"ForAnyValue:StringEquals": {"k": ["1"]}}, {"k": ["2", "1"]}, True),
        ({"ForAllValues:StringNotLike": {"k": ["*@*", "x"]}}, {"k": ["a", "b"]}, True),
        ({"ForAllValues:StringNotLike": {"k": ["*@*", "x"]}}, {"k": ["a", "b@c"]}, False),
        ({"StringNotLike": {"k": "x"}}, {}, True),
        ({"Null": {"k": "false"}}, {}, False),
        ({"Null": {"k": "false"}}, {"k": ["1"]}, True),
        ({"Null": {"k": "true"}}, {}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:SecureTransport": ["False"]}, True),
        ({"ArnLike": {"k": "arn:aws:sqs:*:1:q"}}, {"k": ["arn:aws:sqs:eu:1:q"]}, True),
        ({"ArnLike": {"k": "arn:aws:*:1:q"}}, {"k": ["arn:aws:sqs:eu:1:q"]}, False),
    ],
)
def test_conditions(condition: Any, context: Any, expected: bool) -> None:
    assert allows([policy("a:B", Condition=condition)], Request("a:B", "*", context)) is expected


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"Condition": {"NumericLessThan": {"k": "1"}}}, "operator 'NumericLessThan' is not supported"),
        ({"NotAction": "a:C"}, "NotAction is not supported"),
    ],
)
def test_unsupported_policy_elements_are_errors(more: Any, problem: str) -> None:
    with pytest.raises(LocalCloudError, match=problem):
        allows([policy("a:B", **more)], Request("a:B", "*", {"k": ["1"]}))


def test_actions_are_listed_as_written() -> None:
    documents = [policy(["a:B", "c:*"]), policy("x:Y", effect="Deny")]
    assert allowed_actions(documents) == {"a:B", "c:*"}
