"""Background snapshots as wired by the subcommand: real adapters on moto."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import EfsMount
from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.jobs import REGION, node
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.storage.volume.background_snapshots import BackgroundSnapshots
from userdata.agent.tasks import snapshots


@pytest.fixture
def training(aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path) -> tasks.Node:
    """An instance whose data volume is here."""
    made = node(aws, metadata_server, clock, tmp_path / "run", f"{REGION}a", DiskHost(aws))
    made.run_in_background = lambda work: work()
    assert tasks.volume(made, "up") == 0
    return made


def taken(ec2: Any) -> list[dict[str, str]]:
    found = ec2.describe_snapshots(Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}])["Snapshots"]
    return [{tag["Key"]: tag["Value"] for tag in one["Tags"]} for one in found]


def made_for(training: tasks.Node) -> BackgroundSnapshots:
    found = snapshots.background_snapshots(training, lambda: True)
    assert found is not None
    return found


def test_a_snapshot_carries_the_lease_of_the_run_and_the_next_process_takes_no_second(
    aws: Any, training: tasks.Node
) -> None:
    made_for(training).poll()
    [tags] = taken(aws)
    [home] = aws.describe_volumes(Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}])["Volumes"]
    assert (tags["gpu-spot:token"], tags["gpu-spot:source"]) == ("1", home["VolumeId"])
    made_for(training).poll()
    assert len(taken(aws)) == 1


def test_none_is_taken_where_the_stack_wants_none_or_nothing_is_held(aws: Any, training: tasks.Node) -> None:
    assert training.config.volume is not None
    quiet = replace(training.config.volume, snapshot_every_minutes=0)
    wanted, training.config = training.config, replace(training.config, volume=quiet)
    assert snapshots.background_snapshots(training, lambda: True) is None
    training.config = wanted
    (training.directory / "lease.json").unlink()
    assert snapshots.background_snapshots(training, lambda: True) is None


def test_checkpoints_on_efs_are_no_reason_for_another(training: tasks.Node, tmp_path: Path) -> None:
    training.data = tmp_path
    newest = tmp_path / "checkpoints" / "resnet" / "step-1"
    newest.parent.mkdir(parents=True)
    newest.write_text("saved")
    assert made_for(training).schedule.last_changed_at() == newest.stat().st_mtime
    in_parent = newest.parent.parent / "epoch-7.h5"  # a script that knows no variable
    in_parent.write_text("saved")
    os.utime(in_parent, (2e9, 2e9))
    assert made_for(training).schedule.last_changed_at() == 2e9
    on_efs = EfsMount("fs-1", "fsap-1", str(newest.parent))
    training.config = replace(training.config, efs=(on_efs,))
    assert made_for(training).schedule.last_changed_at() == 0.0


def test_the_trainer_looks_after_it_while_the_command_runs(
    metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, clock, metadata_server)
    bench.stand_still()
    looks: list[int] = []
    trainer = bench.trainer("sleep 0.3; exit 0")
    trainer._on_poll = lambda: looks.append(1)
    try:
        assert trainer.run() == "done"
    finally:
        bench.close()
    assert len(looks) > 3
