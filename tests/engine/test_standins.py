"""What the stand-ins refuse, as the providers do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.standins.schema import problems, resource_schema
from tests.engine.standins.values import SIGNATURE, UNKNOWN, differences, text

SUBNET = "aws:ec2/subnet:Subnet"
GROUP = "aws:autoscaling/group:Group"


@pytest.mark.parametrize(
    ("token", "inputs", "expected"),
    [
        (SUBNET, {"vpcId": "vpc-1"}, []),
        (SUBNET, {"vpcId": UNKNOWN, "mapPublicIpOnLaunch": "true"}, []),
        (SUBNET, {}, [("vpcId", "missing, required")]),
        (SUBNET, {"vpcId": "vpc-1", "zone": "a"}, [("zone", "unknown input")]),
        (
            SUBNET,
            {"vpcId": "vpc-1", "mapPublicIpOnLaunch": "yes"},
            [("mapPublicIpOnLaunch", "'yes', allowed: bool")],
        ),
        (
            GROUP,
            {"minSize": 1, "maxSize": 2, "mixedInstancesPolicy": {"instancesDistribution": {"share": 1}}},
            [
                ("mixedInstancesPolicy.launchTemplate", "missing, required"),
                ("mixedInstancesPolicy.instancesDistribution.share", "unknown input"),
            ],
        ),
        ("aws:iam/role:Role", {"assumeRolePolicy": "{}"}, []),  # a text or an object
    ],
)
def test_inputs_are_checked_against_the_sdk(token: str, inputs: dict[str, Any], expected: Any) -> None:
    schema = resource_schema(token)
    assert schema is not None
    assert list(problems(schema, inputs)) == expected


def test_a_type_that_the_sdk_lacks_has_no_schema() -> None:
    assert resource_schema("aws:ec2/network:Network") is None


def test_a_difference_has_a_path_in_pulumis_notation() -> None:
    archive = {SIGNATURE: "archive", "hash": "a"}
    old = {"tags": {"gpu-spot:stack": "a"}, "zones": ["a"], "code": archive}
    new = {"tags": {"gpu-spot:stack": "b"}, "zones": ["a", "b"], "code": {**archive, "path": "elsewhere"}}
    assert [(text(path), kind) for path, kind in differences(old, new)] == [
        ('tags["gpu-spot:stack"]', "UPDATE"),
        ("zones[1]", "ADD"),
    ]
