"""Attachments of volumes: one instance at a time, in the volume's zone.

Source: EC2 API reference, ``AttachVolume`` and "Error codes" (InvalidVolume.ZoneMismatch, VolumeInUse).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend

from pulumi_on_moto.fixes.fix import Fix


def _checked(attach: Callable[..., Any]) -> Callable[..., Any]:
    def attached(backend: Any, volume_id: str, instance_id: str, *arguments: Any, **keywords: Any) -> Any:
        volume, instance = backend.get_volume(volume_id), backend.get_instance(instance_id)
        zone = instance.placement.zone
        if volume.zone.name != zone:
            raise EC2ClientError(
                "InvalidVolume.ZoneMismatch", f"The volume '{volume_id}' is not in the same availability zone"
            )
        if volume.attachment is not None:
            raise EC2ClientError("VolumeInUse", f"{volume_id} is already attached to an instance")
        return attach(backend, volume_id, instance_id, *arguments, **keywords)

    return attached


ATTACHMENTS = Fix(
    "attachments of volumes",
    moto="AttachVolume takes any zone, and a volume that is attached",
    aws="refuses another zone and a second instance",
    patches=((EC2Backend, "attach_volume", _checked(EC2Backend.attach_volume)),),
)
