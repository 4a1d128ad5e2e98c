"""Of what controller, health checker and scaler write, each value has one writer, by their roles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contracts import names
from tests.iam import Request, allows
from tests.infra.declared import Run
from tests.infra.test_scaling import SCALING, stack

GROUP = "inference"
CHECKER = "health-checker"
FUNCTIONS = ("controller", CHECKER, "scaler")
PARAMETERS = {
    names.PARAMETER_TARGET: "scaler",
    names.PARAMETER_REPLACEMENT_REQUESTS: CHECKER,
    names.PARAMETER_CONFIG: None,
    names.PARAMETER_CONTROL: None,
    names.PARAMETER_HEALTH: None,
    names.PARAMETER_SCALING: None,
}
ITEMS = {
    GROUP: "controller",
    names.health_memory(GROUP): CHECKER,
    names.scaling_memory(GROUP): "scaler",
}
CAPACITY = (
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "ec2:TerminateInstances",
    "ec2:ModifySpotFleetRequest",
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return stack(tmp_path_factory.mktemp("scales"), SCALING)


def policies(known: Run, function: str) -> list[dict[str, Any]]:
    """Return the documents of a function's role."""
    found = [
        policy["policy"]
        for name, policy in known.of("RolePolicy").items()
        if name.startswith(f"gpu-spot-{known.stack}-{function}")
    ]
    assert found
    return [json.loads(text) for text in found]


def writers(known: Run, request: Request) -> list[str]:
    return [function for function in FUNCTIONS if allows(policies(known, function), request)]


def table_of(known: Run, function: str) -> str:
    """Return the ARN of the memory table, as the function's policy names it."""
    return next(
        resource
        for document in policies(known, function)
        for statement in document["Statement"]
        if "dynamodb:PutItem" in statement["Action"]
        for resource in statement["Resource"]
    )


@pytest.mark.parametrize("leaf", PARAMETERS)
def test_a_parameter_of_a_group_has_one_writer(known: Run, leaf: str) -> None:
    name = names.group_parameter("dev", GROUP, leaf)
    [written] = [
        resource
        for document in policies(known, "scaler")
        for statement in document["Statement"]
        if statement["Sid"] == "WriteTargets"
        for resource in statement["Resource"]
    ]
    arn = written.partition("parameter/")[0] + f"parameter{name}"
    expected = PARAMETERS[leaf]
    assert writers(known, Request("ssm:PutParameter", arn)) == ([expected] if expected else [])


@pytest.mark.parametrize("key", ITEMS)
def test_a_memory_has_one_writer(known: Run, key: str) -> None:
    request = Request("dynamodb:PutItem", table_of(known, "scaler"), {"dynamodb:LeadingKeys": [key]})
    assert writers(known, request) == [ITEMS[key]]


@pytest.mark.parametrize("action", CAPACITY)
def test_only_the_controller_changes_capacity(known: Run, action: str) -> None:
    for function in (CHECKER, "scaler"):
        allowed = [
            statement["Sid"]
            for document in policies(known, function)
            for statement in document["Statement"]
            if action in statement["Action"]
        ]
        assert allowed == []
