"""Lifecycle hooks for launch and termination."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified

_GUIDE: Final = 'Auto Scaling guide, "Amazon EC2 Auto Scaling lifecycle hooks"'
_AGENT: Final = "userdata/agent/aws/hooks.py"
_HOOK: Final = "check"


def _group_with_hook(test_bed: AwsTestBed, suffix: str, transition: str) -> str:
    """Return an empty group with a lifecycle hook."""
    group = test_bed.group(suffix)
    test_bed.clients("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName=group,
        LifecycleHookName=_HOOK,
        LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
        HeartbeatTimeout=300,
        DefaultResult="CONTINUE",
    )
    return group


def _wait_for_state(test_bed: AwsTestBed, group: str, state: str) -> str:
    def instance_in_state() -> str | None:
        return next((i for i, current in test_bed.lifecycle_states(group).items() if current == state), None)

    return test_bed.wait_until(instance_in_state, state)


def _complete(test_bed: AwsTestBed, group: str, instance: str) -> None:
    test_bed.clients("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=group,
        LifecycleHookName=_HOOK,
        InstanceId=instance,
        LifecycleActionResult="CONTINUE",
    )


@assumes(_GUIDE, _AGENT, "it is in service earlier", instances=1)
def launch_hook_holds(test_bed: AwsTestBed) -> str:
    """A launch hook keeps an instance in Pending:Wait until it is completed."""
    group = _group_with_hook(test_bed, "launching", "LAUNCHING")
    test_bed.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    instance = _wait_for_state(test_bed, group, "Pending:Wait")
    test_bed.clock.sleep(30)
    if test_bed.lifecycle_states(group)[instance] != "Pending:Wait":
        raise Falsified(f"30 s later it is {test_bed.lifecycle_states(group)[instance]}")
    _complete(test_bed, group, instance)
    _wait_for_state(test_bed, group, "InService")
    return "Pending:Wait, then InService"


@assumes("CompleteLifecycleAction", _AGENT, "another message, or none", instances=1)
def no_active_action(test_bed: AwsTestBed) -> str:
    """Completing an inactive hook is rejected with 'No active Lifecycle Action found'."""
    group = _group_with_hook(test_bed, "early", "TERMINATING")
    [instance] = test_bed.scale_to(group, 1)
    return test_bed.expect_refusal(
        lambda: _complete(test_bed, group, instance), "No active Lifecycle Action found"
    )


@assumes(_GUIDE, "lambdas/aws/capacity/auto_scaling.py", "it disappears at once, or counts", instances=1)
def terminating_wait(test_bed: AwsTestBed) -> str:
    """A terminated instance is listed as Terminating:Wait, does not count, and leaves after its hook."""
    group = _group_with_hook(test_bed, "terminating", "TERMINATING")
    [instance] = test_bed.scale_to(group, 1)
    test_bed.clients("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=True
    )
    _wait_for_state(test_bed, group, "Terminating:Wait")
    test_bed.expect_desired_capacity(group, 0)
    _complete(test_bed, group, instance)
    test_bed.wait_until(lambda: instance not in test_bed.lifecycle_states(group), "it is terminated")
    return "Terminating:Wait with desired capacity 0, terminated after the hook"
