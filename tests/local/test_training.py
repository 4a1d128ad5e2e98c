"""A training job is really created, and its boot data names what really lies there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("training.py")


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_it_is_a_group_beside_the_services(seen: dict[str, Any]) -> None:
    assert seen["groups"] == ["inference", "resnet"]
    assert seen["target"] == "1"


def test_the_archive_in_the_bucket_is_the_one_that_boots_verify(seen: dict[str, Any]) -> None:
    assert seen["is_what_was_meant"]


def test_a_launch_makes_a_volume_of_each_dataset(seen: dict[str, Any]) -> None:
    [told] = seen["agent"]["datasets"]
    assert told == {"snapshot": "snap-0123456789abcdef0", "device": "/dev/sdk", "path": "/data/coco"}
    _, disk = seen["disks"]
    assert disk["DeviceName"] == told["device"]
    assert (disk["Ebs"]["SnapshotId"], disk["Ebs"]["VolumeInitializationRate"]) == (told["snapshot"], 200)


def test_the_agent_is_told_the_table_that_is_there(seen: dict[str, Any]) -> None:
    assert seen["agent"]["training"]["jobTable"] == seen["table"]
    assert seen["key"] == [{"AttributeName": "job", "KeyType": "HASH"}]
