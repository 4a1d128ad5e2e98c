"""Background snapshots of the job's volume during training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node

if TYPE_CHECKING:
    from userdata.agent.storage.volume.background_snapshots import BackgroundSnapshots


def background_snapshots(node: Node, is_wanted: Callable[[], bool]) -> BackgroundSnapshots | None:
    """Return the snapshot task, active while ``is_wanted``; None without a volume or an interval."""
    from userdata.agent.storage.volume.background_snapshots import BackgroundSnapshots, SnapshotSchedule
    from userdata.agent.storage.volume.model import HeldVolume
    from userdata.agent.work.training.checkpoint_files import newest_checkpoint

    volume, lease_and_volume = node.config.volume, job.lease_and_volume(node)
    if volume is None or lease_and_volume is None or not volume.snapshot_every_minutes:
        return None
    is_on_efs = job.saves_to_efs(node)
    schedule = SnapshotSchedule(
        60.0 * volume.snapshot_every_minutes,
        (lambda: 0.0) if is_on_efs else partial(newest_checkpoint, job.progress_directory(node)),
        is_wanted,
    )
    return BackgroundSnapshots(
        HeldVolume(*lease_and_volume),
        node.data,
        job.ebs(node),
        job.leases(node),
        node.host,
        node.clock,
        schedule,
        node.run_in_background,
    )
