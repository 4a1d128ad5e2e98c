"""Snapshots of the job's volume while it trains, put together on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from userdata.agent.config.names import LEASE_FILE
from userdata.agent.machine import files
from userdata.agent.tasks.node import Node

if TYPE_CHECKING:
    from userdata.agent.storage.volume.ahead import Ahead


def ahead(node: Node, is_wanted: Callable[[], bool]) -> Ahead | None:
    """Return what takes them, while ``is_wanted``; None without a volume, or where the stack wants none."""
    from userdata.agent.storage.volume.ahead import Ahead, Rhythm
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.storage.volume.lease import DynamoLease
    from userdata.agent.storage.volume.model import HeldVolume
    from userdata.agent.work.train import newest_checkpoint

    config, volume, training = node.config, node.config.volume, node.config.training
    held = files.read_json(node.directory / LEASE_FILE)
    if volume is None or training is None or held is None or not volume.snapshot_every_minutes:
        return None
    checkpoints = node.data / "checkpoints" / training.job
    is_elsewhere = any(Path(mount.path) == checkpoints for mount in config.efs)
    rhythm = Rhythm(
        60.0 * volume.snapshot_every_minutes,
        (lambda: 0.0) if is_elsewhere else partial(newest_checkpoint, checkpoints),
        is_wanted,
    )
    dynamodb, me = node.clients.dynamodb(config.region), node.identity.instance
    return Ahead(
        HeldVolume(int(held["token"]), str(held["volume"])),
        node.data,
        AwsEbs(node.clients.ec2(config.region), config.stack, config.group, training.job, volume),
        DynamoLease(dynamodb, training.job_table, training.job, me, node.clock),
        node.host,
        node.clock,
        rhythm,
        node.aside,
    )
