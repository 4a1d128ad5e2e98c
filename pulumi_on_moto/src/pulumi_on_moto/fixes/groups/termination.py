"""``TerminateInstanceInAutoScalingGroup`` ends exactly the instance that it names."""

from __future__ import annotations

from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.groups.members import Listener, activities, leave


def _terminate_instance(backend: AutoScalingBackend, instance_id: str, should_decrement: bool) -> Any:
    for group in backend.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance.id == instance_id:
                return _terminate(backend, group, state.instance, should_decrement)
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _terminate(
    backend: AutoScalingBackend, group: FakeAutoScalingGroup, instance: Any, should_decrement: bool
) -> Any:
    if should_decrement:
        if int(group.desired_capacity or 0) <= int(group.min_size or 0):
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                "replacement will violate group's min size constraint. Either set "
                "shouldDecrementDesiredCapacity flag to false or lower group's min size."
            )
        group.desired_capacity = int(group.desired_capacity or 0) - 1
    group.ec2_backend.terminate_instances([instance.id])
    leave(group, instance, "a user request")
    listener: Listener | None = getattr(backend, "local_listener", None)
    if listener is not None:
        listener(instance)
    return activities(group)[0] | {"StatusCode": "InProgress", "Progress": 0}


NAMED_INSTANCE: Final = Fix(
    "the named instance ends",
    moto="TerminateInstanceInAutoScalingGroup lets the group refill itself at once; it knows no minimum",
    aws="ends the instance; with decrement it lowers the desired capacity, but not below the minimum",
    patches=((AutoScalingBackend, "terminate_instance", _terminate_instance),),
)
