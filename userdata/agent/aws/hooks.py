"""Lifecycle hooks of the instance's Auto Scaling group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from userdata.agent.aws.clients import as_agent_error, error_code
from userdata.agent.machine import log

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient

Result = Literal["CONTINUE", "ABANDON"]


def complete(client: AutoScalingClient, group: str, hook: str, instance: str, result: Result) -> bool:
    """Complete a lifecycle action of the Auto Scaling group; tell whether there was one.

    AWS answers ValidationError ("No active Lifecycle Action found") before the hook begins and after it
    ended.

    Raises:
        AgentError: any other refusal, or AWS cannot be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client.complete_lifecycle_action(
            AutoScalingGroupName=group,
            LifecycleHookName=hook,
            InstanceId=instance,
            LifecycleActionResult=result,
        )
    except (BotoCoreError, ClientError) as error:
        if error_code(error) == "ValidationError":
            return False
        raise as_agent_error(f"lifecycle hook {hook}", error) from None
    log.info("lifecycle hook completed", hook=hook, result=result)
    return True
