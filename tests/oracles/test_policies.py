"""Every policy that a stack declares means something by AWS's Service Authorization Reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oracles.deployed import NAMES, deployed
from tests.oracles.reference import lacking, wrong

POLICIES = ("policy", "assumeRolePolicy")
BY_NAME = "arn:aws:autoscaling:us-west-2:123456789012:autoScalingGroup:*:autoScalingGroupName/gpu-spot-dev-*"
VOLUME = "arn:aws:ec2:us-west-2:123456789012:volume/*"


def documents(stack: str) -> list[tuple[str, dict[str, Any]]]:
    """Every document with statements of a stack, after its resource's type and name."""
    return [
        (f"{one.type} {one.name}", json.loads(one.inputs[key]))
        for one in deployed(stack)
        for key in POLICIES
        if isinstance(one.inputs.get(key), str) and "Statement" in one.inputs[key]
    ]


@pytest.mark.parametrize("stack", NAMES)
def test_every_statement_means_what_it_says(stack: str) -> None:
    found = documents(stack)
    assert len(found) >= 8
    assert [
        f"{name}, {statement['Sid']}: {fault}"
        for name, document in found
        for statement in document["Statement"]
        for fault in wrong(statement)
    ] == []


@pytest.mark.parametrize("stack", NAMES)
def test_a_role_is_granted_all_that_an_action_needs(stack: str) -> None:
    roles = [(name, one) for name, one in documents(stack) if name.startswith("aws:iam/rolePolicy:")]
    assert roles
    assert [f"{name}: {fault}" for name, document in roles for fault in lacking(document)] == []


@pytest.mark.parametrize(
    ("action", "resource", "key", "says"),
    [
        ("autoscaling:SetDesiredCapacities", BY_NAME, None, "no such action"),
        ("autoscaling:Set*Capacities", BY_NAME, None, "no such action"),
        ("ec2:DescribeVolumes", VOLUME, None, "knows no resource like arn:aws:ec2"),
        ("s3:ListBucket", "arn:aws:s3:::books/*", None, "knows no resource like arn:aws:s3:::books/*"),
        ("s3:GetObject", "arn:aws:s3:::books", None, "knows no resource like arn:aws:s3:::books"),
        ("dynamodb:PutItem", "arn:aws:dynamodb:us-west-2:1:index/jobs", None, "knows no resource like"),
        ("autoscaling:SetDesiredCapacity", BY_NAME, "ec2:ResourceTag/a", "condition key ec2:ResourceTag/a"),
        ("ec2:DescribeVolumes", "*", "aws:ResourceTag/a", "condition key aws:ResourceTag/a"),
        ("dynamodb:DescribeTable", "arn:aws:dynamodb:a:1:table/b", "dynamodb:LeadingKeys", "LeadingKeys"),
    ],
)
def test_a_statement_that_grants_nothing_is_found(
    action: str, resource: str, key: str | None, says: str
) -> None:
    statement: dict[str, Any] = {"Effect": "Allow", "Action": [action], "Resource": [resource]}
    if key:
        assert list(wrong(statement)) == []
        statement["Condition"] = {"StringEquals": {key: "b"}}
    found = list(wrong(statement))
    assert says in found[0], found


def test_a_resource_that_no_action_knows_is_found() -> None:
    statement = {"Effect": "Allow", "Action": ["ec2:DeleteVolume"], "Resource": [VOLUME, BY_NAME]}
    assert list(wrong(statement)) == [f"{BY_NAME}: no action of the statement knows such a resource"]


def test_half_of_what_an_action_needs_is_found() -> None:
    attach = {"Effect": "Allow", "Action": ["ec2:AttachVolume"], "Resource": [VOLUME]}
    assert list(lacking({"Statement": [attach]})) == ["ec2:AttachVolume: needs instance, too"]
    to = {**attach, "Resource": [VOLUME.replace("volume", "instance")]}
    assert list(lacking({"Statement": [attach, to]})) == []
