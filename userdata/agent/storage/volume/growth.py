"""The home's size and speed follow the stack file: upwards, and never so that a refusal stops the job.

EBS takes a change of a volume only when the last one is completed, and four in 24 hours (EC2's API,
``ModifyVolume``; in its older text six hours lie between two). It refuses others by
``IncorrectModificationState`` or ``VolumeModificationRateExceeded``: asked for again at the next mount.
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
_SEEN_WITHIN: Final = 120.0
"""Seconds in which the kernel has seen the new size; it counts from the state ``optimizing`` on."""
_LOOK_EVERY: Final = 5.0


@dataclass(frozen=True)
class Shape:
    """A volume's size and throughput (MiB/s); 0: whatever it is."""

    size_gib: int = 0
    throughput_mib: int = 0


AS_IT_IS: Final = Shape()


def change(home: EbsVolume, wanted: Shape) -> Shape:
    """Return what to ask EBS for: never less space, and throughput only where the type has a setting."""
    size = wanted.size_gib if home.size_gib and wanted.size_gib > home.size_gib else 0
    has_setting = home.throughput_mib and wanted.throughput_mib
    speed = wanted.throughput_mib if has_setting and wanted.throughput_mib != home.throughput_mib else 0
    return Shape(size, speed)


def follow(
    home: EbsVolume,
    wanted: Shape,
    ebs: AwsEbs,
    host: Host,
    clock: Clock,
    mount_point: Path,
    keep_alive: Callable[[], None],
) -> None:
    """Bring the mounted home to the wanted shape, and its file system to the size of its device.

    Raises:
        LeaseLostError: by ``keep_alive``, which is called while the kernel has not seen the new size.
    """
    if home.size_gib > wanted.size_gib > 0:
        log.info(
            "the volume stays as large as it is: none shrinks",
            volume=home.id,
            has_gib=home.size_gib,
            stack_says_gib=wanted.size_gib,
        )
    device = host.mounted(mount_point)
    if device is None:
        return
    asked = change(home, wanted)
    try:
        if asked != AS_IT_IS:
            ebs.modify_volume(home.id, asked.size_gib, asked.throughput_mib)
            log.info("volume is changed", volume=home.id, change=str(asked))
        end = clock.monotonic() + _SEEN_WITHIN
        while host.capacity(device) < asked.size_gib * _GIB and clock.monotonic() < end:
            keep_alive()
            clock.sleep(_LOOK_EVERY)
        host.grow(device, mount_point)
    except LeaseLostError:
        raise
    except AgentError as error:
        log.warning("the volume is not changed until the next mount", volume=home.id, error=str(error))
