"""Preflight names a volume that a new job may be meant to have, and the command that gives it to the job."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.agent import names
from gpu_spot.preflight.checks import volumes
from pulumi_on_moto import AwsClients
from tests.infra import training
from tests.preflight.worlds import REGION, results_of, stack

ATLAS = {"name": "atlas", "version": "1", "command": ["true"], "instanceType": "m7i.large"}
FILES = {"fileSystem": {"accessPoints": [{"name": "files", "path": "/files"}]}}


def volume(clients: AwsClients, **tags: str) -> str:
    labels = [{"Key": key.replace("__", ":"), "Value": value} for key, value in tags.items()]
    response = clients("ec2").create_volume(
        AvailabilityZone=f"{REGION}a",
        Size=20,
        TagSpecifications=[{"ResourceType": "volume", "Tags": labels}],
    )
    return str(response["VolumeId"])


def test_a_volume_without_a_job_fails_a_job_without_a_volume(clients: AwsClients) -> None:
    with_job = stack(training=[training.job(), training.job(name="vit")])
    assert not results_of(volumes, with_job, clients)
    earlier = volume(clients, Name=names.VOLUME_NAME)
    [result] = results_of(volumes, with_job, clients)
    assert (result.subject, result.status) == (earlier, "failure")
    assert result.finding.startswith(
        f"{earlier} (20 GiB, in {REGION}a, available) belongs to no job, and resnet, vit"
    )
    assert result.advice == f"gpu-spot jobs adopt-volume resnet {earlier} --stack dev, or --blank for the id"
    volume(clients, **names.job_tags("dev", "resnet"))
    [result] = results_of(volumes, with_job, clients)
    assert "and vit has no volume" in result.finding
    volume(clients, **names.job_tags("dev", "vit"))
    assert not results_of(volumes, with_job, clients)


@pytest.mark.parametrize(
    "tags",
    [
        {"Name": "my-data"},
        {"Name": names.VOLUME_NAME, "gpu-spot__state": names.STATE_UNUSED},
        {"Name": names.VOLUME_NAME, "gpu-spot__job": "vit", "gpu-spot__stack": "prod"},
    ],
)
def test_other_volumes_are_no_question(clients: AwsClients, tags: dict[str, str]) -> None:
    volume(clients, **tags)
    assert not results_of(volumes, stack(training=[training.job()]), clients)


@pytest.mark.parametrize(
    "changes",
    [{"prepare": ATLAS}, {"checkpoints": "files"}, {"volumeGiB": 0, "checkpoints": "files", "dataset": None}],
)
def test_a_job_that_the_agent_does_not_ask_for_is_not_checked(
    clients: AwsClients, changes: dict[str, Any]
) -> None:
    volume(clients, Name=names.VOLUME_NAME)
    assert not results_of(volumes, stack(training=[training.job(**changes)], storage=FILES), clients)


def test_a_snapshot_counts_where_no_volume_is_left(clients: AwsClients) -> None:
    source = volume(clients, Name="my-data")
    tags = [{"Key": "Name", "Value": names.SNAPSHOT_NAME}]
    left = clients("ec2").create_snapshot(
        VolumeId=source, TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}]
    )["SnapshotId"]
    with_job = stack(training=[training.job()])
    assert [result.subject for result in results_of(volumes, with_job, clients)] == [left]
    earlier = volume(clients, Name=names.VOLUME_NAME)
    assert [result.subject for result in results_of(volumes, with_job, clients)] == [earlier]
