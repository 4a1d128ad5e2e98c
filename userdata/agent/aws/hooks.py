"""Lifecycle hooks of the instance's Auto Scaling group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine import log

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient

Result = Literal["CONTINUE", "ABANDON"]


def complete(client: AutoScalingClient, group: str, hook: str, instance: str, result: Result) -> bool:
    """Complete a lifecycle action of the Auto Scaling group; return whether one was active.

    Raises:
        AgentError: another error of AWS, or AWS is unreachable.
    """
    done = _is_active(
        hook,
        lambda: client.complete_lifecycle_action(
            AutoScalingGroupName=group,
            LifecycleHookName=hook,
            InstanceId=instance,
            LifecycleActionResult=result,
        ),
    )
    if done:
        log.info("lifecycle hook completed", hook=hook, result=result)
    return done


def extend(client: AutoScalingClient, group: str, hook: str, instance: str) -> bool:
    """Restart the timeout of a lifecycle action; return whether one was active.

    AWS ends the wait after 48 hours or 100 timeouts at the latest (Auto Scaling API reference,
    ``GlobalTimeout``).

    Raises:
        AgentError: another error of AWS, or AWS is unreachable.
    """
    return _is_active(
        hook,
        lambda: client.record_lifecycle_action_heartbeat(
            AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance
        ),
    )


def _is_active(hook: str, call: Callable[[], object]) -> bool:
    """Make a call for a lifecycle action; return False if none is active.

    AWS returns ValidationError ("No active Lifecycle Action found") before the hook starts and after it
    has ended.
    """
    try:
        with aws_errors(f"lifecycle hook {hook}"):
            call()
    except AwsError as error:
        if error.code == "ValidationError":
            return False
        raise
    return True
