"""Instances return to the warm pool by a scale-in, if that can remove no other instance."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import CapacityChange
from lambdas.aws.settings import parse
from tests.fakes.aws import FakeAws, config
from tests.lambdas.single_group import NOW

GROUP = parse("inference", {"config": config(), "target": "4"}).group
REUSE = {"WarmPoolConfiguration": {"InstanceReusePolicy": {"ReuseOnScaleIn": True}}}


@pytest.fixture
def pooled() -> FakeAws:
    """A fallback of three instances whose warm pool takes back instances."""
    aws = FakeAws()
    aws.add_group("fallback", desired=3)
    aws.groups["fallback"] |= REUSE
    for number in range(3):
        aws.add_instance("fallback", f"i-{number}", spot=False, launched=NOW, heartbeat=NOW)
    return aws


def move(aws: FakeAws, order: CapacityChange) -> None:
    AutoScalingService(aws.client("autoscaling")).apply("fallback", order, GROUP)


def left(aws: FakeAws) -> tuple[int, list[str]]:
    group = aws.groups["fallback"]
    return group["DesiredCapacity"], [member["InstanceId"] for member in group["Instances"]]


def test_instances_return_to_the_pool_by_scale_in(pooled: FakeAws) -> None:
    move(pooled, CapacityChange(3, 3, ("i-1", "i-2"), freed_slots=2))
    assert left(pooled) == (1, ["i-0"])
    assert pooled.calls["set_desired_capacity"] == pooled.calls["set_instance_protection"] == 1
    assert pooled.calls["terminate_instance_in_auto_scaling_group"] == 0


@pytest.mark.parametrize(
    ("change", "desired"),
    [
        (CapacityChange(3, 3, ("i-1",), freed_slots=1, skip_warm_pool=True), 2),
        (CapacityChange(3, 4, ("i-1",), freed_slots=1), 3),
    ],
    ids=["unhealthy", "replaced"],
)
def test_other_instances_are_terminated(pooled: FakeAws, change: CapacityChange, desired: int) -> None:
    move(pooled, change)
    assert left(pooled) == (desired, ["i-0", "i-2"])
    assert pooled.calls["terminate_instance_in_auto_scaling_group"] == 1


def test_protection_is_removed_in_batches(pooled: FakeAws) -> None:
    many = [f"i-{number}" for number in range(3, 120)]
    for name in many:
        pooled.add_instance("fallback", name, spot=False, launched=NOW, heartbeat=NOW)
    pooled.groups["fallback"]["DesiredCapacity"] = 120
    move(pooled, CapacityChange(120, 120, tuple(many), freed_slots=117))
    assert left(pooled) == (3, ["i-0", "i-1", "i-2"])
    assert pooled.calls["set_instance_protection"] == 3


@pytest.mark.parametrize(
    ("group", "members"),
    [
        ({}, {0: {"LifecycleState": "Pending:Wait"}}),
        ({}, {0: {"ProtectedFromScaleIn": False}}),
        ({"DesiredCapacity": 4}, {}),
        ({"WarmPoolConfiguration": {}}, {}),
        ({"WarmPoolConfiguration": {"InstanceReusePolicy": {"ReuseOnScaleIn": False}}}, {}),
        ({}, {2: {"LifecycleState": "Terminating:Proceed"}}),
    ],
    ids=["one boots", "one is open", "one is lacking", "no reuse", "another policy", "it is gone"],
)
def test_instances_are_terminated_if_a_scale_in_could_remove_others_or_none(
    pooled: FakeAws, group: dict[str, Any], members: dict[int, dict[str, Any]]
) -> None:
    pooled.groups["fallback"] |= group
    for number, changes in members.items():
        pooled.groups["fallback"]["Instances"][number] |= changes
    before = pooled.groups["fallback"]["DesiredCapacity"]
    move(pooled, CapacityChange(before, before, ("i-2",), freed_slots=1))
    assert left(pooled) == (before - 1, ["i-0", "i-1"])
    assert pooled.calls["set_instance_protection"] == 0


def test_the_next_pass_completes_a_failed_scale_in(pooled: FakeAws) -> None:
    pooled.throttled["set_desired_capacity"] = 1
    order = CapacityChange(3, 3, ("i-1",), freed_slots=1)
    with pytest.raises(ClientError, match="Throttling"):
        move(pooled, order)
    assert left(pooled) == (3, ["i-0", "i-1", "i-2"])
    move(pooled, order)
    assert left(pooled) == (2, ["i-0", "i-2"])
