"""Market events are published as AWS events and pass the deployed rules."""

from __future__ import annotations

from lambdas.core.model import GroupRole
from market.replay.groups import SPOT_REFUSAL
from tests.live.world import START, Running, bodies


def test_a_notice_has_the_shape_that_aws_gives_it(running: Running) -> None:
    instance = running.launch()
    bodies(running)
    running.cloud.notice(instance, START + 120)
    event, hooked = bodies(running)
    # The sample's group rebalances, so that it calls its termination hook at the notice.
    assert hooked["detail-type"] == "EC2 Instance-terminate Lifecycle Action"
    assert event.pop("id")
    assert event == {
        "version": "0",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2023-11-14T22:13:20Z",
        "region": "us-west-2",
        "resources": [f"arn:aws:ec2:us-west-2a:instance/{instance}"],
        "detail": {"instance-id": instance, "instance-action": "terminate"},
    }


def test_only_matching_rules_deliver(running: Running) -> None:
    # The sample has no rule for state changes and recommendations, and one for scaling by name prefix.
    instance = running.launch()
    running.cloud.rebalance(instance)
    running.cloud.refuse("inference", GroupRole.PRIMARY, SPOT_REFUSAL)
    running.cloud.kill([instance])
    assert [event["detail-type"] for event in bodies(running)] == [
        "EC2 Instance Launch Successful",
        "EC2 Instance Launch Unsuccessful",
        "EC2 Instance-terminate Lifecycle Action",
    ]


def test_a_termination_by_a_client_is_announced(running: Running) -> None:
    instance = running.launch()
    bodies(running)
    running.terminate(instance)
    running.clients("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=running.cloud.group("inference").primary,
        LifecycleHookName=running.deployment.resource(
            "aws:autoscaling/lifecycleHook:LifecycleHook", "drain"
        ).id,
        InstanceId=instance,
        LifecycleActionResult="CONTINUE",
    )
    waits, event = bodies(running)
    assert (
        waits["detail"]["LifecycleTransition"],
        waits["detail"]["Origin"],
        waits["detail"]["Destination"],
    ) == ("autoscaling:EC2_INSTANCE_TERMINATING", "AutoScalingGroup", "EC2")
    assert event["detail"]["EC2InstanceId"] == instance
    assert event["detail"]["AutoScalingGroupName"] == running.cloud.group("inference").primary
