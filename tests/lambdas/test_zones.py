"""On-Demand in a zone: launched there, or else in any zone of the group, and never twice."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from contracts.registry import item as registry_item
from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import CapacityChange, ZoneUnavailableError
from lambdas.aws.settings import parse
from lambdas.core.capacity import memory as codec
from lambdas.core.capacity.memory import Memory
from tests.fakes.aws import FakeAws, config, worker
from tests.lambdas.single_group import NOW, activity, controller, declared, only

HOME = "us-west-2b"
POLICY = {"name": "expected-cost", "parameters": {}}
JOB: dict[str, Any] = {"max": 2, "breakBeforeMake": True, "byZone": True, "policy": POLICY}
GROUP = parse("resnet", {"config": config(**JOB), "target": "1"}).group


@pytest.fixture
def job() -> FakeAws:
    """A job whose Spot instance in ``HOME`` was interrupted, and whose Spot launches fail."""
    aws = declared(target=1, primary=1, group="resnet", **JOB)
    aws.activities["primary"] = [activity("Failed", "UnfulfillableCapacity")]
    aws.remember(codec.dump(Memory(volume_zone=HOME)), "resnet")
    return aws


def fallback(aws: FakeAws) -> tuple[int, list[str]]:
    """Return the desired capacity and the members."""
    group = aws.groups["fallback"]
    return group["DesiredCapacity"], [member["InstanceId"] for member in group["Instances"]]


def move(aws: FakeAws, order: CapacityChange, client: Any = None) -> None:
    AutoScalingService(client or aws.client("autoscaling")).apply("fallback", order, GROUP)


def test_a_lost_job_goes_on_demand_in_the_zone_of_its_volume(job: FakeAws) -> None:
    outcome = only(controller(job).run())
    assert fallback(job) == (1, [f"i-in-{HOME}"])
    assert outcome.read_errors == ()
    assert job.calls["set_desired_capacity"] == 0
    # Once applied and observed there is no further action.
    only(controller(job, NOW + 20).run())
    assert (job.calls["launch_instances"], fallback(job)[0]) == (1, 1)


def test_without_capacity_in_the_zone_the_group_launches_in_any_and_once(job: FakeAws) -> None:
    job.full_zones = {HOME}
    outcome = only(controller(job).run())
    assert fallback(job) == (1, [])
    [error] = outcome.read_errors
    assert error.startswith(f"'fallback' launches in any zone, not in {HOME}: InsufficientInstanceCapacity")
    assert outcome.errors == ()
    only(controller(job, NOW + 60).run())
    assert job.calls["launch_instances"] == 1


def test_after_a_failed_call_the_desired_capacity_is_set(job: FakeAws) -> None:
    job.throttled["launch_instances"] = 1
    with pytest.raises(ZoneUnavailableError, match="Rate exceeded"):
        move(job, CapacityChange(0, 1, zone=HOME))
    assert fallback(job) == (1, [])


class OlderSdk:
    """A client of a botocore before 1.40.76, which has no such operation."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if name == "launch_instances":
            raise AttributeError(name)
        return getattr(self._client, name)


def test_a_zone_that_is_only_tried_changes_nothing_without_capacity(job: FakeAws) -> None:
    tried = CapacityChange(0, 1, zone=HOME, only_there=True)
    job.full_zones = {HOME}
    move(job, tried)
    assert fallback(job) == (0, [])
    job.full_zones = set()
    move(job, tried)
    assert fallback(job) == (1, [f"i-in-{HOME}"])
    with pytest.raises(ZoneUnavailableError, match=f"'fallback' cannot try {HOME}: launch_instances"):
        move(job, tried, OlderSdk(job.client("autoscaling")))
    assert job.calls["set_desired_capacity"] == 0


def test_an_sdk_without_the_operation_sets_the_desired_capacity(job: FakeAws) -> None:
    with pytest.raises(ZoneUnavailableError, match=f"in any zone, not in {HOME}: launch_instances"):
        move(job, CapacityChange(0, 1, zone=HOME), OlderSdk(job.client("autoscaling")))
    assert fallback(job) == (1, [])
    assert job.calls["set_desired_capacity"] == 1


def test_a_lost_response_is_not_compensated(job: FakeAws) -> None:
    client = job.client("autoscaling")
    launch = client.launch_instances

    def lost(**kwargs: Any) -> None:
        launch(**kwargs)
        raise ReadTimeoutError(endpoint_url="https://autoscaling")

    client.launch_instances = lost
    with pytest.raises(ZoneUnavailableError):
        move(job, CapacityChange(0, 1, zone=HOME), client)
    assert fallback(job) == (1, [f"i-in-{HOME}"])
    assert job.calls["set_desired_capacity"] == 0


def test_a_repeated_launch_has_the_same_token_and_a_later_one_another(job: FakeAws) -> None:
    tokens: list[str] = []
    client, change = job.client("autoscaling"), CapacityChange(0, 1, zone=HOME)

    def lost(**kwargs: Any) -> None:
        tokens.append(kwargs["ClientToken"])
        raise ReadTimeoutError(endpoint_url="https://autoscaling")

    client.launch_instances = lost
    for now in (NOW, NOW + 20, NOW + 3600):
        job.groups["fallback"]["DesiredCapacity"] = 0
        with pytest.raises(ZoneUnavailableError):
            AutoScalingService(client, lambda now=now: now).apply("fallback", change, GROUP)  # type: ignore[misc]
    assert tokens[0] == tokens[1] != tokens[2]


def test_while_the_call_is_in_progress_nothing_else_is_launched(job: FakeAws) -> None:
    client = job.client("autoscaling")

    def in_progress(**_: Any) -> None:
        raise ClientError(
            {"Error": {"Code": "IdempotentCallInProgress", "Message": "wait"}}, "LaunchInstances"
        )

    client.launch_instances = in_progress
    with pytest.raises(ClientError, match="IdempotentCallInProgress"):
        move(job, CapacityChange(0, 1, zone=HOME), client)
    assert fallback(job) == (0, [])
    assert job.calls["set_desired_capacity"] == 0


def test_decreases_and_terminations_launch_nothing(job: FakeAws) -> None:
    job.groups["fallback"]["DesiredCapacity"] = 2
    move(job, CapacityChange(2, 1, zone=HOME))
    job.add_instance("fallback", "i-0", spot=False, launched=NOW, heartbeat=NOW)
    move(job, CapacityChange(1, 2, ("i-0",), freed_slots=1, zone=HOME))
    assert fallback(job) == (1, [])
    assert job.calls["launch_instances"] == 0


def test_it_is_an_error_if_the_desired_capacity_cannot_be_set(job: FakeAws) -> None:
    job.throttled["launch_instances"] = job.throttled["set_desired_capacity"] = 1
    with pytest.raises(ClientError, match="set_desired_capacity"):
        move(job, CapacityChange(0, 1, zone=HOME))


@pytest.mark.parametrize("is_job", [False, True])
def test_members_outside_the_zones_are_handed_over(is_job: bool) -> None:
    """AWS moves none while AZRebalance is suspended; a service's worker goes when another is ready."""
    size = 1 if is_job else 4
    aws = declared(size, size, max=8, zones=["us-west-2b", "us-west-2c"], breakBeforeMake=is_job)
    for number in range(size):
        aws.add_instance("primary", f"i-{number:02}", spot=True, launched=NOW - 7200, heartbeat=None)
    present = set(aws.instances)
    for minute in range(60):
        now = NOW + 60 * minute
        for name, group in aws.groups.items():
            for number in range(group["DesiredCapacity"] - len(group["Instances"])):
                new = f"i-1{minute:02}{number}"
                aws.add_instance(name, new, spot=name == "primary", launched=now, heartbeat=None)
                group["Instances"][-1]["AvailabilityZone"] = HOME
                aws.instances[new]["Placement"] = {"AvailabilityZone": HOME}
        aws.slots = [registry_item.dump(worker(one, NOW - 7000, now - 5)) for one in aws.instances]
        only(controller(aws, now).run())
        assert is_job or len(aws.instances) >= size
    assert not present & set(aws.instances)
    assert len(aws.instances) >= size


def test_a_job_is_not_sent_back_to_a_removed_zone(job: FakeAws) -> None:
    job.set("resnet", config=config(**JOB, zones=["us-west-2a", "us-west-2c"]))
    job.groups["primary"]["DesiredCapacity"] = 1
    [outcome] = controller(job).run()
    assert outcome.decision is not None
    asked = [action for action in outcome.decision.actions if getattr(action, "zone", "")]
    assert asked == []
