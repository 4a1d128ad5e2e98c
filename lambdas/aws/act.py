"""Carry decisions out: the only place that changes capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from lambdas.aws.settings import GroupSettings
from lambdas.core.model import Action, Alarm, Release, SetDesired

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient


@dataclass(frozen=True, slots=True)
class Actor:
    """Acts on Auto Scaling groups through an injected client."""

    autoscaling: AutoScalingClient

    def perform(self, action: Action, settings: GroupSettings) -> None:
        """Carry out one action; an alarm changes nothing in AWS. Repeating an action changes nothing more."""
        match action:
            case SetDesired(side, capacity):
                self.autoscaling.set_desired_capacity(
                    AutoScalingGroupName=settings.asg[side], DesiredCapacity=capacity, HonorCooldown=False
                )
            case Release(_, instance_ids):
                for instance_id in instance_ids:
                    self._release(instance_id)
            case Alarm():
                pass

    def _release(self, instance_id: str) -> None:
        try:
            self.autoscaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=True
            )
        except ClientError as error:
            # Gone already: what was wanted is so, and the next look sees it.
            if "not found" not in error.response["Error"].get("Message", "").casefold():
                raise
