"""``TerminateInstanceInAutoScalingGroup`` terminates exactly the named instance."""

from __future__ import annotations

from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.groups.leaving import end
from pulumi_on_moto.fixes.groups.members import member
from pulumi_on_moto.fixes.groups.weights import weight


def _terminate_instance(backend: AutoScalingBackend, instance_id: str, should_decrement: bool) -> Any:
    for group in backend.autoscaling_groups.values():
        state = member(group, instance_id)
        if state is not None:
            if should_decrement:
                _decrement(group, weight(state))
            return end(group, state, "a user request") | {"StatusCode": "InProgress", "Progress": 0}
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _decrement(group: FakeAutoScalingGroup, by: int) -> None:
    if int(group.desired_capacity or 0) - by < int(group.min_size or 0):
        raise ValidationError(
            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
            "replacement will violate group's min size constraint. Either set "
            "shouldDecrementDesiredCapacity flag to false or lower group's min size."
        )
    group.desired_capacity = int(group.desired_capacity or 0) - by


NAMED_INSTANCE: Final = Fix(
    "the named instance ends",
    moto="TerminateInstanceInAutoScalingGroup lets the group refill itself at once; it knows no minimum",
    aws="ends it, also a protected one; with decrement lowers the desired capacity by its "
    "weight, not below MinSize",
    patches=((AutoScalingBackend, "terminate_instance", _terminate_instance),),
)
