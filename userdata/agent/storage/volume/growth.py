"""Grow the current volume to the size and throughput in the stack file; an error of EBS never stops the job.

EBS accepts a modification of a volume only after the last one is completed, and four in 24 hours (EC2's API,
``ModifyVolume``; its older text: one in six hours). It rejects others with ``IncorrectModificationState`` or
``VolumeModificationRateExceeded``: retried at the next mount, for a tenant while its container runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import Host
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.storage.volume.model import EbsVolume

_GIB: Final = 2**30
_RESIZE_TIMEOUT_SECONDS: Final = 120.0
"""Timeout for the kernel to show the new size; usable from the state ``optimizing`` on."""
_POLL_INTERVAL_SECONDS: Final = 5.0


@dataclass(frozen=True)
class VolumeShape:
    """A volume's size and throughput (MiB/s); 0: unchanged."""

    size_gib: int = 0
    throughput_mib: int = 0


UNCHANGED: Final = VolumeShape()


def required_change(volume: EbsVolume, desired: VolumeShape) -> VolumeShape:
    """Return the modification to request: never a smaller size; throughput only if the type supports it."""
    size = desired.size_gib if volume.size_gib and desired.size_gib > volume.size_gib else 0
    has_setting = volume.throughput_mib and desired.throughput_mib
    speed = desired.throughput_mib if has_setting and desired.throughput_mib != volume.throughput_mib else 0
    return VolumeShape(size, speed)


def apply_shape(
    volume: EbsVolume,
    desired: VolumeShape,
    ebs: AwsEbs,
    host: Host,
    clock: Clock,
    mount_point: Path,
    keep_alive: Callable[[], None],
) -> str:
    """Modify the mounted volume to the desired shape and grow its file system to the size of its device.

    Returns why the volume has not this shape yet, empty if it has.

    Raises:
        LeaseLostError: by ``keep_alive``, which is called while waiting for the new size.
    """
    if volume.size_gib > desired.size_gib > 0:
        log.info(
            "volume not shrunk: EBS volumes only grow",
            volume=volume.id,
            has_gib=volume.size_gib,
            configured_gib=desired.size_gib,
        )
    device = host.mounted(mount_point)
    if device is None:
        return f"nothing is mounted at {mount_point}"
    requested = required_change(volume, desired)
    size_gib = max(requested.size_gib, volume.size_gib)
    try:
        if requested != UNCHANGED:
            ebs.modify_volume(volume.id, requested.size_gib, requested.throughput_mib)
            log.info("volume modification requested", volume=volume.id, change=str(requested))
        end = clock.monotonic() + (_RESIZE_TIMEOUT_SECONDS if requested.size_gib else 0.0)
        while (is_smaller := host.capacity(device) < size_gib * _GIB) and clock.monotonic() < end:
            keep_alive()
            clock.sleep(_POLL_INTERVAL_SECONDS)
        host.grow(device, mount_point)
    except LeaseLostError:
        raise
    except AgentError as error:
        log.warning("volume not modified yet", volume=volume.id, error=str(error))
        return str(error)
    return f"the kernel does not show {size_gib} GiB yet" if is_smaller else ""
