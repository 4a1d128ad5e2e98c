"""An instance that a client terminates leaves the group or fleet that holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.models import AutoScalingBackend
from moto.core.responses import ActionResult
from moto.ec2.responses.instances import InstanceResponse

from pulumi_on_moto.fixes import Patches, around, local, set_local
from pulumi_on_moto.fixes.fleets.request import FleetRequest
from pulumi_on_moto.fixes.groups.leaving import lose

_TERMINATED: Final = ("shutting-down", "terminated")


def listen(backend: Any, listener: Callable[[Any, bool], None]) -> None:
    """Call ``listener(instance, left)`` when a client terminates an instance of a group or fleet.

    ``left`` is false while the instance waits for its group's termination hook.
    """
    set_local(backend, "listener", listener)


def released(backend: Any, instance_ids: list[str]) -> None:
    """Remove terminated instances from their group or fleet, and notify the listener."""
    listener: Callable[[Any, bool], None] | None = local(backend, "listener")
    for instance_id in instance_ids:
        instance = backend.get_instance(instance_id)
        holder, has_left = _holder(instance), True
        if isinstance(holder, FleetRequest):
            holder.leave(instance)
        else:
            has_left = lose(holder, instance, "an EC2 health check indicating it has been terminated")
        if listener is not None:
            listener(instance, has_left)


def _holder(instance: Any) -> Any:
    """Return the fleet or group of an instance, None without one."""
    return getattr(instance, "local_fleet", None) or getattr(instance, "autoscaling_group", None)


def _terminate(terminate: Callable[..., ActionResult], response: InstanceResponse) -> ActionResult:
    requested_ids = response._get_param("InstanceIds", [])
    instances = [response.ec2_backend.get_instance(instance_id) for instance_id in requested_ids]
    members = [i.id for i in instances if i.state not in _TERMINATED and _holder(i) is not None]
    result = terminate(response)
    released(response.ec2_backend, members)
    return result


def _leave_groups_alone(backend: AutoScalingBackend, instance_ids: list[str]) -> None:
    """Do nothing, as ``released`` does it: moto would remove the members without regard to hooks."""


PATCHES: Final[Patches] = (
    around(InstanceResponse, "terminate_instances", _terminate),
    (AutoScalingBackend, "notify_terminate_instances", _leave_groups_alone),
)
