"""``gpu-spot jobs adopt-volume``: an earlier volume, from its tags to the agent that attaches it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from contracts.agent import names
from gpu_spot import cli
from gpu_spot.jobs import command as jobs
from gpu_spot.jobs.reader import JobError
from gpu_spot.preflight.unclaimed_volumes import read_named
from infra.schema import Settings
from infra.settings import load_settings
from tests.docs.keys import documented
from tests.infra import training
from tests.jobs.stack import REGION, Stack
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import node as new_node
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.machine.errors import RefusedError
from userdata.agent.tasks import job as job_tasks

ZONE, OTHER_ZONE = f"{REGION}a", f"{REGION}b"
CAPACITY = {"kind": "mixed-asg", "target": 1, "max": 2, "instanceTypes": ["g5.xlarge"]}
FILES = {"fileSystem": {"accessPoints": [{"name": "files", "path": "/files"}]}}
ATLAS = {"name": "atlas", "version": "1", "command": ["true"], "instanceType": "m7i.large"}
NAME = {"Name": names.VOLUME_NAME}
EARLIER = {"Name": names.SNAPSHOT_NAME}


def settings(**changes: Any) -> Settings:
    return load_settings(
        {
            "aws:region": REGION,
            "gpu-spot:network": {"cidr": "10.0.0.0/16", "zones": [ZONE, OTHER_ZONE]},
            "gpu-spot:services": [],
            "gpu-spot:storage": FILES,
            "gpu-spot:training": [
                training.job(**{"capacity": CAPACITY, "volumeGiB": 100, "dataset": None, **changes})
            ],
        }
    )


def tags(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


def volume(
    stack: Stack, labels: dict[str, str] = NAME, *, zone: str = ZONE, encrypted: bool = True, size: int = 20
) -> str:
    """Create a volume as a user does; encrypted, so with the account's AWS managed key, unless said."""
    response = stack("ec2").create_volume(
        AvailabilityZone=zone,
        Size=size,
        Encrypted=encrypted,
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags(labels)}] if labels else [],
    )
    return str(response["VolumeId"])


def snapshot(stack: Stack, source: str, labels: dict[str, str] = EARLIER) -> str:
    response = stack("ec2").create_snapshot(
        VolumeId=source, TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags(labels)}]
    )
    return str(response["SnapshotId"])


def tags_of(stack: Stack, resource: str) -> dict[str, str]:
    described = stack("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
    return {tag["Key"]: tag["Value"] for tag in described}


def parsed(*words: str) -> argparse.Namespace:
    return cli.parser().parse_args(["jobs", *words])


@pytest.fixture
def adopt(
    stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    monkeypatch.setattr(jobs, "JobReader", lambda *_: stack.reader)

    def run(*words: str, **changes: Any) -> str:
        arguments = parsed("adopt-volume", "resnet", *words)
        assert jobs.act(arguments, stack, REGION, settings=partial(settings, **changes)) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def metadata_server() -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.close()


class Instances:
    """Instances of the job, one after another, with the agent's adapters on moto."""

    def __init__(self, stack: Stack, server: MetadataServer, folder: Path) -> None:
        self.stack, self.server, self.folder = stack, server, folder
        self.host, self.clock, self.count = DiskHost(stack("ec2")), FakeClock(), 0

    def launch(self, zone: str) -> tasks.Node:
        self.count += 1
        self.host.at = None
        node = new_node(
            self.stack("ec2"), self.server, self.clock, self.folder / str(self.count), zone, self.host
        )
        config = configs.load(configs.training(volume={"sizeGib": 10}, registryTable=self.stack.registry))
        assert config.training is not None
        node.config = replace(config, training=replace(config.training, job_table=self.stack.jobs))
        return node


@pytest.fixture
def instances(stack: Stack, metadata_server: MetadataServer, tmp_path: Path) -> Instances:
    stack.group("resnet", run=configs.REVISION)
    return Instances(stack, metadata_server, tmp_path)


def current_volume(stack: Stack) -> str:
    snapshot = stack.reader.find("resnet")
    assert snapshot is not None
    return snapshot.row.volume


def test_a_first_boot_next_to_an_earlier_volume_fails_the_run_and_adoption_continues_it(
    stack: Stack, instances: Instances, adopt: Callable[..., str]
) -> None:
    earlier = volume(stack)
    instances.host.formatted.add(f"/dev/{earlier}")
    with pytest.raises(RefusedError, match=f"adopt-volume JOB {earlier}"):
        tasks.volume(instances.launch(ZONE), "up")
    report = stack.reader.report("resnet")
    assert (report.status.phase, stack.finished("resnet")) == ("failed", configs.REVISION)
    assert f"`gpu-spot jobs adopt-volume JOB {earlier}`" in report.status.reason
    [metric] = boto3.client("cloudwatch", region_name=REGION).list_metrics(MetricName="JobFailures")[
        "Metrics"
    ]
    assert {d["Name"]: d["Value"] for d in metric["Dimensions"]} == {"stack": "dev", "group": "resnet"}
    assert [stored.id for stored in read_named(stack)] == [earlier]

    assert "then run `gpu-spot jobs retry resnet --stack dev`" in adopt("--yes")
    assert jobs.act(parsed("retry", "resnet"), stack, REGION) == 0
    instances.clock.advance(600)
    second = instances.launch(ZONE)
    assert tasks.volume(second, "up") == 0
    assert current_volume(stack) == earlier
    assert tags_of(stack, earlier)["gpu-spot:state"] == "live"
    assert tasks.volume(second, "down") == 0

    instances.clock.advance(600)
    assert tasks.volume(instances.launch(OTHER_ZONE), "up") == 0
    assert [stored.zone for stored in read_named(stack)] == [OTHER_ZONE, ""]
    assert current_volume(stack) != earlier


def test_of_an_unencrypted_volume_the_job_gets_an_encrypted_copy_and_the_volume_stays(
    stack: Stack, instances: Instances, adopt: Callable[..., str]
) -> None:
    earlier = volume(stack, encrypted=False, size=30)
    said = adopt("--yes")
    assert "resnet adopts snap-" in said
    assert (
        f"creates an encrypted volume of 100 GiB from a snapshot of {earlier}, which is not encrypted" in said
    )
    assert tasks.volume(instances.launch(OTHER_ZONE), "up") == 0
    [created] = stack("ec2").describe_volumes(VolumeIds=[current_volume(stack)])["Volumes"]
    assert (created["Encrypted"], created["Size"], created["AvailabilityZone"]) == (True, 30, OTHER_ZONE)
    assert tags_of(stack, created["SnapshotId"])["gpu-spot:job"] == "resnet"
    assert tags_of(stack, earlier) == {**NAME, "gpu-spot:state": "unused"}


def test_blank_ends_the_question_for_all_jobs(
    stack: Stack, instances: Instances, adopt: Callable[..., str]
) -> None:
    earlier = volume(stack)
    left = snapshot(stack, earlier)
    assert f"marked as unused: {earlier}, {left}; new jobs start with blank volumes" in adopt("--blank")
    assert "no volume or snapshot is without a job" in adopt("--blank")
    assert tasks.volume(instances.launch(ZONE), "up") == 0
    assert current_volume(stack) not in ("", earlier)
    with pytest.raises(JobError, match=r"no volume 'DL-datasets-checkpoints' and no snapshot .* give"):
        adopt("--yes")


def test_a_snapshot_alone_is_asked_about_and_adopted(
    stack: Stack, instances: Instances, adopt: Callable[..., str]
) -> None:
    source = volume(stack, {})
    left = snapshot(stack, source)
    with pytest.raises(RefusedError, match=f"adopt-volume JOB {left}"):
        tasks.volume(instances.launch(ZONE), "up")
    assert f"resnet adopts {left}" in adopt(left, "--yes")
    assert jobs.act(parsed("retry", "resnet"), stack, REGION) == 0
    instances.clock.advance(600)
    assert tasks.volume(instances.launch(ZONE), "up") == 0
    [created] = stack("ec2").describe_volumes(VolumeIds=[current_volume(stack)])["Volumes"]
    assert created["SnapshotId"] == left


def test_a_volume_in_error_is_asked_about_by_neither(
    stack: Stack, instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = volume(stack, NAME)
    ebs = job_tasks.ebs(instances.launch(ZONE))
    assert ebs.unclaimed() == (failed,)
    monkeypatch.setattr("moto.ec2.models.elastic_block_store.Volume.status", "error")
    assert (ebs.unclaimed(), read_named(stack)) == ((), ())  # a command could not answer it, either


def test_the_agents_own_filters_find_what_was_tagged(
    stack: Stack, instances: Instances, adopt: Callable[..., str]
) -> None:
    other_name = volume(stack, {"Name": "my-data"})
    ebs = job_tasks.ebs(instances.launch(ZONE))
    assert (ebs.volumes(), ebs.unclaimed()) == ((), ())
    adopt(other_name, "--yes")
    assert [(v.id, v.token, v.tag_state) for v in ebs.volumes()] == [(other_name, None, None)]
    assert tags_of(stack, other_name) == {**names.job_tags("dev", "resnet"), "gpu-spot:group": "resnet"}


def test_snapshots_of_the_adopted_volume_no_longer_ask(stack: Stack, adopt: Callable[..., str]) -> None:
    earlier = volume(stack)
    left = snapshot(stack, earlier)
    adopt("--yes")
    assert tags_of(stack, left)["gpu-spot:state"] == "unused"


def test_of_several_volumes_one_is_named_and_the_others_still_ask(
    stack: Stack, adopt: Callable[..., str]
) -> None:
    first, second = sorted([volume(stack), volume(stack)])
    left = snapshot(stack, first)
    with pytest.raises(JobError, match=f"2 are without a job: .*{second}.*; give the id of one"):
        adopt("--yes")
    adopt(second, "--yes")
    assert tags_of(stack, first) == NAME
    assert tags_of(stack, left) == EARLIER


def test_before_the_first_deployment_the_tags_are_enough(stack: Stack, adopt: Callable[..., str]) -> None:
    earlier = volume(stack)
    printed = json.loads(adopt("--yes", "--json"))
    assert printed.keys() == documented("jobs stop")
    assert (printed["action"], printed["job"]) == ("adopt-volume", None)
    assert printed["said"].startswith(
        f"resnet adopts {earlier}; an instance in {ZONE} attaches {earlier}; it grows"
    )
    assert json.loads(adopt(earlier, "--json"))["said"] == f"{earlier} already belongs to resnet"


def test_what_follows_is_said_before_it_is_confirmed(
    stack: Stack, adopt: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = volume(stack, size=200, zone=f"{REGION}c")
    with pytest.raises(JobError, match="confirmation is impossible; use --yes"):
        adopt()
    said = capsys.readouterr().err
    assert f"the stack has no subnet in {REGION}c\n" in said
    assert f"takes a snapshot, creates its own volume from it, and then deletes {earlier}" in said
    assert tags_of(stack, earlier) == NAME


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({**NAME, "gpu-spot:stack": "prod", "gpu-spot:job": "vit"}, "belongs to job 'vit' of stack 'prod'"),
        ({**NAME, "gpu-spot:stack": "prod"}, "belongs to job 'none' of stack 'prod'"),
        ({**NAME, "gpu-spot:job": "vit"}, "belongs to job 'vit' of stack 'none'"),
    ],
)
def test_the_volume_of_another_job_or_stack_is_not_adopted(
    stack: Stack, adopt: Callable[..., str], labels: dict[str, str], message: str
) -> None:
    foreign = volume(stack, labels)
    with pytest.raises(JobError, match=message):
        adopt(foreign, "--yes")
    assert tags_of(stack, foreign) == labels


def test_an_attached_volume_and_a_missing_one_are_not_adopted(
    stack: Stack, adopt: Callable[..., str]
) -> None:
    attached, instance = volume(stack), stack.instance("vit")
    stack("ec2").attach_volume(VolumeId=attached, InstanceId=instance, Device="/dev/sdf")
    with pytest.raises(JobError, match=f"{attached} is attached to {instance}; detach it first"):
        adopt("--yes")
    for missing in ("vol-0123456789abcdef0", "snap-0123456789abcdef0", "data"):
        with pytest.raises(JobError, match=f"volume '{missing}' does not exist; name a volume"):
            adopt(missing, "--yes")


def test_a_job_with_a_volume_adopts_no_other(
    stack: Stack, instances: Instances, adopt: Callable[..., str]
) -> None:
    assert tasks.volume(instances.launch(ZONE), "up") == 0
    earlier = volume(stack)
    with pytest.raises(
        JobError, match=f"job 'resnet' already has volume {current_volume(stack)}; name a job without"
    ):
        adopt("--yes")
    assert tags_of(stack, earlier) == NAME


def test_a_job_with_only_a_tagged_volume_adopts_no_other(stack: Stack, adopt: Callable[..., str]) -> None:
    created = volume(stack, names.job_tags("dev", "resnet"))
    earlier = volume(stack)
    with pytest.raises(JobError, match=f"job 'resnet' already has {created} .*; name a job without a volume"):
        adopt(earlier, "--yes")


def test_a_key_that_the_role_may_not_use_is_refused(stack: Stack, adopt: Callable[..., str]) -> None:
    key = stack("kms").create_key()["KeyMetadata"]["Arn"]
    response = stack("ec2").create_volume(AvailabilityZone=ZONE, Size=1, Encrypted=True, KmsKeyId=key)
    with pytest.raises(
        JobError, match=rf"is encrypted with {key}, which the job's role may not use.*alias/aws/ebs"
    ):
        adopt(response["VolumeId"], "--yes")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit", {}, "job 'vit' does not exist; jobs on instances in the stack file: resnet"),
        (
            "resnet",
            {"volumeGiB": 0, "checkpoints": "files"},
            "job 'resnet' has volumeGiB 0; name a job with",
        ),
        (
            "resnet",
            {"dataset": "s3://datasets/a/", "prepare": ATLAS},
            "job 'resnet' starts from its prepared",
        ),
    ],
)
def test_a_job_that_can_adopt_no_volume_is_named(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        jobs._volume_rules(parsed("adopt-volume", name), settings(**changes))
