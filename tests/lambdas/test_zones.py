"""On-demand in one zone: launched there, or wherever the group launches, and never twice."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import NotPlacedError, Order
from lambdas.aws.settings import parse
from lambdas.core.capacity import memory as codec
from lambdas.core.capacity.memory import Memory
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.scene import NOW, ROOT, activity, config, controller, only

HOME = "us-west-2b"
JOB = config(max=2, breakBeforeMake=True, byZone=True, policy={"name": "expected-cost", "knobs": {}})
GROUP = parse("resnet", {"config": JOB, "target": "1"}).group


@pytest.fixture
def job() -> FakeAws:
    """A job that was at work in ``HOME`` before spot took it, and is refused any other."""
    aws = FakeAws(parameters={f"{ROOT}/resnet/config": JOB, f"{ROOT}/resnet/target": "1"})
    aws.add_group("primary", desired=1)
    aws.add_group("fallback")
    aws.activities["primary"] = [activity("Failed", "UnfulfillableCapacity")]
    text = codec.dump(Memory(home=HOME))
    aws.memory["resnet"] = {"group": {"S": "resnet"}, "version": {"N": "1"}, "memory": {"S": text}}
    return aws


def fallback(aws: FakeAws) -> tuple[int, list[str]]:
    """Return its desired capacity and its members."""
    group = aws.groups["fallback"]
    return group["DesiredCapacity"], [member["InstanceId"] for member in group["Instances"]]


def move(aws: FakeAws, order: Order, client: Any = None) -> None:
    AutoScalingService(client or aws.client("autoscaling")).move("fallback", order, GROUP)


def test_a_lost_job_goes_on_demand_in_the_zone_of_its_volume(job: FakeAws) -> None:
    outcome = only(controller(job).run())
    assert fallback(job) == (1, [f"i-in-{HOME}"])
    assert outcome.troubles == ()
    assert job.calls["set_desired_capacity"] == 0
    # Carried out and seen, it wants nothing more.
    only(controller(job, NOW + 20).run())
    assert (job.calls["launch_instances"], fallback(job)[0]) == (1, 1)


def test_where_that_zone_has_none_the_group_seeks_it_in_all_of_its_own_and_nobody_tries_again(
    job: FakeAws,
) -> None:
    job.full_zones = {HOME}
    outcome = only(controller(job).run())
    assert fallback(job) == (1, [])
    [told] = outcome.troubles
    assert told.startswith(
        f"'fallback' launches wherever it can, not in {HOME}: InsufficientInstanceCapacity"
    )
    assert outcome.errors == ()
    only(controller(job, NOW + 60).run())
    assert job.calls["launch_instances"] == 1


def test_a_call_that_is_refused_as_a_whole_becomes_an_order_like_any_other(job: FakeAws) -> None:
    job.throttled["launch_instances"] = 1
    with pytest.raises(NotPlacedError, match="Rate exceeded"):
        move(job, Order(0, 1, zone=HOME))
    assert fallback(job) == (1, [])


def test_a_call_whose_answer_is_lost_is_not_made_up_for(job: FakeAws) -> None:
    client = job.client("autoscaling")
    launch = client.launch_instances

    def lost(**kwargs: Any) -> None:
        launch(**kwargs)
        raise ReadTimeoutError(endpoint_url="https://autoscaling")

    client.launch_instances = lost
    with pytest.raises(NotPlacedError):
        move(job, Order(0, 1, zone=HOME), client)
    assert fallback(job) == (1, [f"i-in-{HOME}"])
    assert job.calls["set_desired_capacity"] == 0


def test_what_is_lowered_or_lets_somebody_go_is_no_launch(job: FakeAws) -> None:
    job.groups["fallback"]["DesiredCapacity"] = 2
    move(job, Order(2, 1, zone=HOME))
    job.add_instance("fallback", "i-0", spot=False, launched=NOW, heartbeat=NOW)
    move(job, Order(1, 2, ("i-0",), freed=1, zone=HOME))
    assert fallback(job) == (1, [])
    assert job.calls["launch_instances"] == 0


def test_where_not_even_that_can_be_set_it_is_an_error(job: FakeAws) -> None:
    job.throttled["launch_instances"] = job.throttled["set_desired_capacity"] = 1
    with pytest.raises(ClientError, match="set_desired_capacity"):
        move(job, Order(0, 1, zone=HOME))
