"""What the stack permits: no more than the code calls, on no more than its own resources."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from lambdas.core import names
from tests.infra.declared import run

LAMBDAS = Path(names.__file__).parents[1]

# The service authorisation reference lists no resource type for these.
NO_RESOURCE_LEVEL = {
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeInstances",
    "ec2:DescribeSpotInstanceRequests",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
    # Its resource is the instance itself, unknown when the role is made.
    "ssm:UpdateInstanceInformation",
}
# Calls of the Systems Manager agent that botocore has no client for.
AGENT_PROTOCOL = {action for action in NO_RESOURCE_LEVEL if action.startswith(("ssm:", "ssmmessages:"))}
# What AWS does with the role, not our code.
BY_AWS = {
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
}


def documents() -> list[tuple[str, dict[str, Any]]]:
    declared = run("known").declared
    texts = [
        (one["name"], one["inputs"][key])
        for one in declared
        for key in ("policy", "assumeRolePolicy")
        if isinstance(one["inputs"].get(key), str)
    ]
    assert len(texts) == 6
    return [(name, json.loads(text)) for name, text in texts]


@pytest.fixture(scope="module")
def all_statements() -> list[tuple[str, dict[str, Any]]]:
    return [(name, statement) for name, document in documents() for statement in document["Statement"]]


def test_no_action_is_a_wildcard(all_statements: list[tuple[str, dict[str, Any]]]) -> None:
    for name, statement in all_statements:
        assert not [action for action in statement["Action"] if "*" in action], (name, statement["Sid"])


def test_every_resource_is_ours_unless_aws_offers_no_narrower_one(
    all_statements: list[tuple[str, dict[str, Any]]],
) -> None:
    for name, statement in all_statements:
        for resource in statement.get("Resource", ()):
            if resource == "*":
                assert set(statement["Action"]) <= NO_RESOURCE_LEVEL, (name, statement["Sid"])
            else:
                assert "gpu-spot-dev-" in resource or "/gpu-spot/dev/" in resource, resource


def test_groups_are_moved_by_name_and_tag(all_statements: list[tuple[str, dict[str, Any]]]) -> None:
    moving = [s for _, s in all_statements if s["Sid"] in ("MoveCapacity", "CompleteLaunchHook")]
    assert len(moving) == 2
    for statement in moving:
        assert statement["Condition"]["StringEquals"]["aws:ResourceTag/gpu-spot:stack"] == "dev"


def test_an_instance_writes_only_its_own_groups_workers(
    all_statements: list[tuple[str, dict[str, Any]]],
) -> None:
    (statement,) = [s for _, s in all_statements if s["Sid"] == "ReportWorkers"]
    assert statement["Condition"]["ForAllValues:StringEquals"] == {"dynamodb:LeadingKeys": ["inference"]}
    assert statement["Condition"]["Null"] == {"dynamodb:LeadingKeys": "false"}


def test_every_action_exists(all_statements: list[tuple[str, dict[str, Any]]]) -> None:
    session = botocore.session.get_session()
    for _, statement in all_statements:
        for action in statement["Action"]:
            service, operation = action.split(":")
            if action in AGENT_PROTOCOL:
                continue
            assert operation in session.get_service_model(service).operation_names, action


def test_the_controller_may_call_what_it_calls_and_nothing_else(
    all_statements: list[tuple[str, dict[str, Any]]],
) -> None:
    granted = {
        action
        for name, statement in all_statements
        if name == "gpu-spot-dev-controller-function" and statement["Sid"] != "Assume"
        for action in statement["Action"]
    }
    assert granted - BY_AWS == called_operations()


def called_operations() -> set[str]:
    """Return the IAM actions of all boto3 calls in ``lambdas``: client methods and paginators by name."""
    session = botocore.session.get_session()
    actions = {
        (service, xform_name(operation)): f"{service}:{operation}"
        for service in ("autoscaling", "dynamodb", "ec2", "ssm", "sqs", "cloudwatch")
        for operation in session.get_service_model(service).operation_names
    }
    found: set[str] = set()
    for path in LAMBDAS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            service = re.sub(r".*\.", "", ast.unparse(node.func.value))
            operation = node.func.attr
            if operation == "get_paginator" and isinstance(node.args[0], ast.Constant):
                operation = str(node.args[0].value)
            if (service, operation) in actions:
                found.add(actions[service, operation])
    return found


def test_the_calls_of_the_adapters_are_found() -> None:
    assert {"autoscaling:SetDesiredCapacity", "dynamodb:PutItem"} <= called_operations()
