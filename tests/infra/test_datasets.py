"""Datasets of a snapshot: a volume for each instance, deleted with it, and minimal permissions."""

from __future__ import annotations

import pytest

from contracts.agent.names import DATASET_DEVICES, VOLUME_DEVICES
from tests.apart import apart
from tests.infra import program, training
from tests.infra.declared import Run, edited_file, edited_stack, in_service

IMAGENET = {
    "snapshot": "snap-0123456789abcdef0",
    "path": "/data/imagenet",
    "initializationRateMib": 300,
    "throughputMib": 500,
}
COCO = {"snapshot": "snap-0123456789abcdef1", "path": "/dltraining/datasets/coco"}


WITH_DATASETS = in_service(datasets=[IMAGENET, COCO])


@pytest.fixture(scope="module")
def known() -> Run:
    return edited_stack(WITH_DATASETS)


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


def test_only_instances_that_need_it_may_describe_volumes(known: Run) -> None:
    assert known.statements("inference-instance")["FindVolumes"]["Action"] == ["ec2:DescribeVolumes"]
    assert "FindSnapshots" not in known.statements("inference-instance")
    without = training.stack()
    assert "FindVolumes" not in without.statements("inference-instance")
    assert {"FindVolumes", "FindSnapshots"} <= without.statements("resnet-instance").keys()


def test_previews_may_look_at_snapshots_only_where_there_are_some() -> None:
    previewed = {"identity": {"previews": {"repository": "team@1/gpu-spot@2"}}}
    for edit, may in ((previewed, False), ({**previewed, **WITH_DATASETS}, True)):
        policy = edited_stack(edit).the("RolePolicy", "previews")["policy"]
        assert ("ec2:DescribeSnapshots" in policy) is may


@pytest.mark.parametrize("mode", ["known", "unknown"])
def test_an_unusable_snapshot_fails_the_preview(mode: str) -> None:
    # The double answers for this one as for a snapshot that is not encrypted.
    plain = in_service(datasets=[COCO | {"snapshot": "snap-00000000"}])
    error, _ = apart(program.refused, mode, "dev", edited_file(plain))
    assert (
        "the dataset's snapshot snap-00000000 must be {'state': 'completed', 'encrypted': True, 'tier': "
        "'standard'}, but is {'state': 'completed', 'encrypted': False, 'tier': 'standard'}"
    ) in error
