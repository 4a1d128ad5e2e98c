"""Snapshots of the job's volume while it trains, put together on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node

if TYPE_CHECKING:
    from userdata.agent.storage.volume.background_snapshots import Ahead


def ahead(node: Node, is_wanted: Callable[[], bool]) -> Ahead | None:
    """Return what takes them, while ``is_wanted``; None without a volume, or where the stack wants none."""
    from userdata.agent.storage.volume.background_snapshots import Ahead, Rhythm
    from userdata.agent.storage.volume.model import HeldVolume
    from userdata.agent.work.training.train import newest_checkpoint

    volume, held = node.config.volume, job.held(node)
    if volume is None or held is None or not volume.snapshot_every_minutes:
        return None
    checkpoints = job.checkpoints(node)
    is_elsewhere = any(checkpoints.is_relative_to(mount.path) for mount in node.config.efs)
    rhythm = Rhythm(
        60.0 * volume.snapshot_every_minutes,
        (lambda: 0.0) if is_elsewhere else partial(newest_checkpoint, checkpoints),
        is_wanted,
    )
    return Ahead(
        HeldVolume(*held),
        node.data,
        job.ebs(node),
        job.leases(node),
        node.host,
        node.clock,
        rhythm,
        node.aside,
    )
