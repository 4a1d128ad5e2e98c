"""Datasets of a snapshot: a volume for each instance, deleted with it, and minimal permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.agent.names import DATASET_DEVICES, VOLUME_DEVICES
from tests.apart import apart
from tests.infra import program, training
from tests.infra.declared import DEV, Run, run, variant

IMAGENET = {
    "snapshot": "snap-0123456789abcdef0",
    "path": "/data/imagenet",
    "initializationRateMib": 300,
    "throughputMib": 500,
}
COCO = {"snapshot": "snap-0123456789abcdef1", "path": "/dltraining/datasets/coco"}


def with_datasets(config: dict[str, Any]) -> None:
    config["gpu-spot:services"][0] |= {"datasets": [IMAGENET, COCO]}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("datasets")
    return run("known", variant(folder, with_datasets))


@pytest.mark.parametrize("side", ["primary", "fallback"])
def test_every_instance_gets_volumes_that_are_deleted_with_it(known: Run, side: str) -> None:
    root, *datasets = known.the("LaunchTemplate", f"inference-{side}")["blockDeviceMappings"]
    assert "snapshotId" not in root["ebs"]
    assert datasets == [
        {
            "deviceName": "/dev/sdk",
            "ebs": {
                "snapshotId": IMAGENET["snapshot"],
                "volumeType": "gp3",
                "throughput": 500,
                "volumeInitializationRate": 300,
                # EC2 rejects `encrypted` with a snapshot.
                "deleteOnTermination": "true",
            },
        },
        {
            "deviceName": "/dev/sdl",
            "ebs": {
                "snapshotId": COCO["snapshot"],
                "volumeType": "gp3",
                "throughput": 125,
                "deleteOnTermination": "true",
            },
        },
    ]


def test_the_agents_configuration_has_the_devices(known: Run) -> None:
    datasets = known.agent("inference-primary")["datasets"]
    assert datasets == [
        {"snapshot": IMAGENET["snapshot"], "device": "/dev/sdk", "path": IMAGENET["path"]},
        {"snapshot": COCO["snapshot"], "device": "/dev/sdl", "path": COCO["path"]},
    ]


def test_the_data_volumes_device_differs_from_theirs() -> None:
    assert not set(DATASET_DEVICES) & set(VOLUME_DEVICES)


def test_only_instances_that_need_it_may_describe_volumes(known: Run, tmp_path: Path) -> None:
    assert known.statements("inference-instance")["FindVolumes"]["Action"] == ["ec2:DescribeVolumes"]
    assert "FindSnapshots" not in known.statements("inference-instance")
    without = training.stack(tmp_path)
    assert "FindVolumes" not in without.statements("inference-instance")
    assert {"FindVolumes", "FindSnapshots"} <= without.statements("resnet-instance").keys()


def test_previews_may_look_at_snapshots_only_where_there_are_some(tmp_path: Path) -> None:
    def previewed(config: dict[str, Any]) -> None:
        config["gpu-spot:identity"] = {"previews": {"repository": "team@1/gpu-spot@2"}}

    def both(config: dict[str, Any]) -> None:
        previewed(config)
        with_datasets(config)

    for name, change, may in (("without", previewed, False), ("with", both, True)):
        folder = tmp_path / name
        folder.mkdir()
        one = run("known", variant(folder, change))
        [policy] = [p["policy"] for n, p in one.of("RolePolicy").items() if n == "previews"]
        assert ("ec2:DescribeSnapshots" in policy) is may


@pytest.mark.parametrize("mode", ["known", "unknown"])
def test_an_unusable_snapshot_fails_the_preview(mode: str, tmp_path: Path) -> None:
    def plain(config: dict[str, Any]) -> None:
        # The double answers for this one as for a snapshot that is not encrypted.
        config["gpu-spot:services"][0]["datasets"] = [COCO | {"snapshot": "snap-00000000"}]

    path = variant(tmp_path, plain, DEV)
    error, _ = apart(program.refused, mode, "dev", path)
    assert (
        "the dataset's snapshot snap-00000000 must be {'state': 'completed', 'encrypted': True, 'tier': "
        "'standard'}, but is {'state': 'completed', 'encrypted': False, 'tier': 'standard'}"
    ) in error
