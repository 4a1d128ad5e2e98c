"""A training job is created, and its boot data names existing resources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import in_json
from tests.live import training


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return in_json(training.seen)


def test_it_is_a_group_in_addition_to_the_services(seen: dict[str, Any]) -> None:
    assert seen["groups"] == ["inference", "resnet"]
    assert seen["target"] == "1"


def test_the_archive_in_the_bucket_is_the_one_that_boots_verify(seen: dict[str, Any]) -> None:
    assert seen["is_what_was_meant"]


def test_a_launch_makes_a_volume_of_each_dataset(seen: dict[str, Any]) -> None:
    [dataset] = seen["agent"]["datasets"]
    assert dataset == {"snapshot": "snap-0123456789abcdef0", "device": "/dev/sdk", "path": "/data/coco"}
    _, disk = seen["disks"]
    assert disk["DeviceName"] == dataset["device"]
    assert (disk["Ebs"]["SnapshotId"], disk["Ebs"]["VolumeInitializationRate"]) == (dataset["snapshot"], 200)


def test_the_agent_config_names_the_deployed_table(seen: dict[str, Any]) -> None:
    assert seen["agent"]["training"]["jobTable"] == seen["table"]
    assert seen["key"] == [{"AttributeName": "job", "KeyType": "HASH"}]
