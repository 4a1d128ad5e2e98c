"""Who is let go returns to the warm pool by a scale-in, where that can take nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import Order
from lambdas.aws.settings import parse
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.scene import NOW, config

GROUP = parse("inference", {"config": config(), "target": "4"}).group
REUSE = {"WarmPoolConfiguration": {"InstanceReusePolicy": {"ReuseOnScaleIn": True}}}


@pytest.fixture
def pooled() -> FakeAws:
    """A fallback of three whose warm pool takes back who is released."""
    aws = FakeAws()
    aws.add_group("fallback", desired=3)
    aws.groups["fallback"] |= REUSE
    for number in range(3):
        aws.add_instance("fallback", f"i-{number}", spot=False, launched=NOW, heartbeat=NOW)
    return aws


def move(aws: FakeAws, order: Order) -> None:
    AutoScalingService(aws.client("autoscaling")).move("fallback", order, GROUP)


def left(aws: FakeAws) -> tuple[int, list[str]]:
    group = aws.groups["fallback"]
    return group["DesiredCapacity"], [member["InstanceId"] for member in group["Instances"]]


def member(aws: FakeAws, number: int) -> dict[str, Any]:
    found: dict[str, Any] = aws.groups["fallback"]["Instances"][number]
    return found


def test_whom_the_pool_takes_back_goes_by_scale_in_and_nobody_is_terminated(pooled: FakeAws) -> None:
    move(pooled, Order(3, 3, ("i-1", "i-2"), freed=2))
    assert left(pooled) == (1, ["i-0"])
    assert pooled.calls["set_desired_capacity"] == pooled.calls["set_instance_protection"] == 1
    assert pooled.calls["terminate_instance_in_auto_scaling_group"] == 0


def test_whom_something_is_wrong_with_is_terminated(pooled: FakeAws) -> None:
    move(pooled, Order(3, 3, ("i-1",), freed=1, for_good=True))
    assert left(pooled) == (2, ["i-0", "i-2"])
    assert pooled.calls["terminate_instance_in_auto_scaling_group"] == 1


def test_so_many_are_opened_to_it_as_a_call_takes(pooled: FakeAws) -> None:
    many = [f"i-{number}" for number in range(3, 120)]
    for name in many:
        pooled.add_instance("fallback", name, spot=False, launched=NOW, heartbeat=NOW)
    pooled.groups["fallback"]["DesiredCapacity"] = 120
    move(pooled, Order(120, 120, tuple(many), freed=117))
    assert left(pooled) == (3, ["i-0", "i-1", "i-2"])
    assert pooled.calls["set_instance_protection"] == 3


def boots(aws: FakeAws) -> None:
    member(aws, 0)["LifecycleState"] = "Pending:Wait"


def is_open(aws: FakeAws) -> None:
    member(aws, 0)["ProtectedFromScaleIn"] = False


def lacks_one(aws: FakeAws) -> None:
    aws.groups["fallback"]["DesiredCapacity"] = 4


def has_no_reuse(aws: FakeAws) -> None:
    del aws.groups["fallback"]["WarmPoolConfiguration"]


def has_another_policy(aws: FakeAws) -> None:
    aws.groups["fallback"]["WarmPoolConfiguration"] = {"InstanceReusePolicy": {"ReuseOnScaleIn": False}}


def has_it_gone(aws: FakeAws) -> None:
    aws.groups["fallback"]["Instances"][2]["LifecycleState"] = "Terminating:Proceed"


@pytest.mark.parametrize(
    "otherwise", [boots, is_open, lacks_one, has_no_reuse, has_another_policy, has_it_gone]
)
def test_where_scale_in_could_take_another_or_nobody_it_is_terminated(
    pooled: FakeAws, otherwise: Any
) -> None:
    otherwise(pooled)
    before = pooled.groups["fallback"]["DesiredCapacity"]
    move(pooled, Order(before, before, ("i-2",), freed=1))
    assert left(pooled) == (before - 1, ["i-0", "i-1"])
    assert pooled.calls["set_instance_protection"] == 0


def test_who_is_replaced_is_terminated_and_does_not_come_back(pooled: FakeAws) -> None:
    move(pooled, Order(3, 4, ("i-2",), freed=1))
    assert left(pooled) == (3, ["i-0", "i-1"])
    assert pooled.calls["terminate_instance_in_auto_scaling_group"] == 1


def test_a_scale_in_that_fails_half_way_is_done_by_the_next_pass(pooled: FakeAws) -> None:
    pooled.throttled["set_desired_capacity"] = 1
    order = Order(3, 3, ("i-1",), freed=1)
    with pytest.raises(ClientError, match="Throttling"):
        move(pooled, order)
    assert left(pooled) == (3, ["i-0", "i-1", "i-2"])
    move(pooled, order)
    assert left(pooled) == (2, ["i-0", "i-2"])
