"""A training job is really created, and its boot data names what really lies there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import in_json
from tests.live import training


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return in_json(training.seen)


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
