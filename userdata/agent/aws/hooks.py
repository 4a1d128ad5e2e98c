"""Lifecycle hooks of the instance's Auto Scaling group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from userdata.agent.aws.clients import AwsError, asking
from userdata.agent.machine import log

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient

Result = Literal["CONTINUE", "ABANDON"]


def complete(client: AutoScalingClient, group: str, hook: str, instance: str, result: Result) -> bool:
    """Complete a lifecycle action of the Auto Scaling group; tell whether there was one.

    Raises:
        AgentError: any other refusal, or AWS cannot be reached.
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
    """Let a lifecycle action begin its timeout anew; tell whether there was one.

    AWS ends a wait all the same after 48 hours or 100 timeouts (Auto Scaling's API reference,
    ``GlobalTimeout``).

    Raises:
        AgentError: any other refusal, or AWS cannot be reached.
    """
    return _is_active(
        hook,
        lambda: client.record_lifecycle_action_heartbeat(
            AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance
        ),
    )


def _is_active(hook: str, call: Callable[[], object]) -> bool:
    """Make a call about a lifecycle action; False where there is none.

    AWS answers ValidationError ("No active Lifecycle Action found") before the hook begins and after it
    ended.
    """
    try:
        with asking(f"lifecycle hook {hook}"):
            call()
    except AwsError as error:
        if error.code == "ValidationError":
            return False
        raise
    return True
