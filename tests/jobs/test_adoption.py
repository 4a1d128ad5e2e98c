"""``gpu-spot jobs adopt-volume``: an earlier volume, from its tags to the agent that attaches it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
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


def parsed(*words: str) -> argparse.Namespace:
    return cli.parser().parse_args(["jobs", *words])


class User:
    """Who adopts a volume of the job in stack ``dev``, and instances with the agent's adapters on moto."""

    def __init__(
        self, stack: Stack, folder: Path, server: MetadataServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.stack, self.ec2, self.folder = stack, stack("ec2"), folder
        self._server, self._capsys = server, capsys
        self.host, self.clock, self._count = DiskHost(self.ec2), FakeClock(), 0

    def volume(
        self, labels: dict[str, str] = NAME, *, zone: str = ZONE, encrypted: bool = True, size: int = 20
    ) -> str:
        """Create a volume; encrypted, so with the account's AWS managed key, unless said."""
        made = [{"ResourceType": "volume", "Tags": tags(labels)}] if labels else []
        response = self.ec2.create_volume(
            AvailabilityZone=zone, Size=size, Encrypted=encrypted, TagSpecifications=made
        )
        return str(response["VolumeId"])

    def snapshot(self, source: str) -> str:
        made = [{"ResourceType": "snapshot", "Tags": tags(EARLIER)}]
        return str(self.ec2.create_snapshot(VolumeId=source, TagSpecifications=made)["SnapshotId"])

    def tags(self, resource: str) -> dict[str, str]:
        described = self.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
        return {tag["Key"]: tag["Value"] for tag in described}

    def adopt(self, *words: str) -> str:
        arguments = parsed("adopt-volume", "resnet", *words)
        assert jobs.act(arguments, self.stack, REGION, settings=settings) == 0
        return self._capsys.readouterr().out

    def retry(self) -> None:
        assert jobs.act(parsed("retry", "resnet"), self.stack, REGION) == 0
        self.clock.advance(600)

    def launch(self, zone: str = ZONE) -> tasks.Node:
        self._count += 1
        self.host.at = None
        node = new_node(self.ec2, self._server, self.clock, self.folder / str(self._count), zone, self.host)
        config = configs.load(configs.training(volume={"sizeGib": 10}, registryTable=self.stack.registry))
        assert config.training is not None
        node.config = replace(config, training=replace(config.training, job_table=self.stack.jobs))
        return node

    @property
    def current(self) -> str:
        """The job's volume, as its item says."""
        snapshot = self.stack.reader.find("resnet")
        return snapshot.row.volume


@pytest.fixture
def user(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[User]:
    monkeypatch.setattr(jobs, "JobReader", lambda *_: stack.reader)
    server = MetadataServer()
    yield User(stack, tmp_path, server, capsys)
    server.close()


@pytest.fixture
def deployed(user: User) -> User:
    user.stack.group("resnet", run=configs.REVISION)
    return user


def test_a_first_boot_next_to_an_earlier_volume_fails_the_run_and_adoption_continues_it(
    deployed: User,
) -> None:
    earlier = deployed.volume()
    deployed.host.formatted.add(f"/dev/{earlier}")
    with pytest.raises(RefusedError, match=f"adopt-volume JOB {earlier}"):
        tasks.volume(deployed.launch(), "up")
    report = deployed.stack.reader.report("resnet")
    assert (report.status.phase, deployed.stack.finished("resnet")) == ("failed", configs.REVISION)
    assert f"`gpu-spot jobs adopt-volume JOB {earlier}`" in report.status.reason
    [metric] = boto3.client("cloudwatch", region_name=REGION).list_metrics(MetricName="JobFailures")[
        "Metrics"
    ]
    assert {d["Name"]: d["Value"] for d in metric["Dimensions"]} == {"stack": "dev", "group": "resnet"}
    assert [stored.id for stored in read_named(deployed.stack)] == [earlier]

    assert "then run `gpu-spot jobs retry resnet --stack dev`" in deployed.adopt("--yes")
    deployed.retry()
    second = deployed.launch()
    assert tasks.volume(second, "up") == 0
    assert deployed.current == earlier
    assert deployed.tags(earlier)["gpu-spot:state"] == "live"
    assert tasks.volume(second, "down") == 0

    deployed.clock.advance(600)
    assert tasks.volume(deployed.launch(OTHER_ZONE), "up") == 0
    assert [stored.zone for stored in read_named(deployed.stack)] == [OTHER_ZONE, ""]
    assert deployed.current != earlier


def test_of_an_unencrypted_volume_the_job_gets_an_encrypted_copy_and_the_volume_stays(deployed: User) -> None:
    earlier = deployed.volume(encrypted=False, size=30)
    said = deployed.adopt("--yes")
    assert "resnet adopts snap-" in said
    assert (
        f"creates an encrypted volume of 100 GiB from a snapshot of {earlier}, which is not encrypted" in said
    )
    assert tasks.volume(deployed.launch(OTHER_ZONE), "up") == 0
    [created] = deployed.ec2.describe_volumes(VolumeIds=[deployed.current])["Volumes"]
    assert (created["Encrypted"], created["Size"], created["AvailabilityZone"]) == (True, 30, OTHER_ZONE)
    assert deployed.tags(created["SnapshotId"])["gpu-spot:job"] == "resnet"
    assert deployed.tags(earlier) == {**NAME, "gpu-spot:state": "unused"}


def test_blank_ends_the_question_for_all_jobs(deployed: User) -> None:
    earlier = deployed.volume()
    left = deployed.snapshot(earlier)
    assert f"marked as unused: {earlier}, {left}; new jobs start with blank volumes" in deployed.adopt(
        "--blank"
    )
    assert "there is no volume or snapshot without a job" in deployed.adopt("--blank")
    assert tasks.volume(deployed.launch(), "up") == 0
    assert deployed.current not in ("", earlier)
    with pytest.raises(JobError, match=r"no volume 'DL-datasets-checkpoints' or snapshot .* give"):
        deployed.adopt("--yes")


def test_a_snapshot_alone_is_asked_about_and_adopted(deployed: User) -> None:
    source = deployed.volume({})
    left = deployed.snapshot(source)
    with pytest.raises(RefusedError, match=f"adopt-volume JOB {left}"):
        tasks.volume(deployed.launch(), "up")
    assert f"resnet adopts {left}" in deployed.adopt(left, "--yes")
    deployed.retry()
    assert tasks.volume(deployed.launch(), "up") == 0
    [created] = deployed.ec2.describe_volumes(VolumeIds=[deployed.current])["Volumes"]
    assert created["SnapshotId"] == left


def test_a_volume_in_error_is_asked_about_by_neither(deployed: User, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = deployed.volume(NAME)
    ebs = job_tasks.ebs(deployed.launch())
    assert ebs.unclaimed() == (failed,)
    monkeypatch.setattr("moto.ec2.models.elastic_block_store.Volume.status", "error")
    assert (ebs.unclaimed(), read_named(deployed.stack)) == ((), ())  # a command could not answer it, either


def test_the_agents_own_filters_find_what_was_tagged(deployed: User) -> None:
    other_name = deployed.volume({"Name": "my-data"})
    ebs = job_tasks.ebs(deployed.launch())
    assert (ebs.volumes(), ebs.unclaimed()) == ((), ())
    deployed.adopt(other_name, "--yes")
    assert [(v.id, v.token, v.tag_state) for v in ebs.volumes()] == [(other_name, None, None)]
    assert deployed.tags(other_name) == {**names.job_tags("dev", "resnet"), "gpu-spot:group": "resnet"}


def test_snapshots_of_the_adopted_volume_no_longer_ask(user: User) -> None:
    earlier = user.volume()
    left = user.snapshot(earlier)
    user.adopt("--yes")
    assert user.tags(left)["gpu-spot:state"] == "unused"


def test_of_several_volumes_one_is_named_and_the_others_still_ask(user: User) -> None:
    first, second = sorted([user.volume(), user.volume()])
    left = user.snapshot(first)
    with pytest.raises(JobError, match=f"2 belong to no job: .*{second}.*; give the ID of one"):
        user.adopt("--yes")
    user.adopt(second, "--yes")
    assert user.tags(first) == NAME
    assert user.tags(left) == EARLIER


def test_before_the_first_deployment_the_tags_are_enough(user: User) -> None:
    earlier = user.volume()
    printed = json.loads(user.adopt("--yes", "--json"))
    assert printed.keys() == documented("jobs stop")
    assert (printed["action"], printed["job"]) == ("adopt-volume", None)
    assert printed["said"].startswith(
        f"resnet adopts {earlier}; an instance in {ZONE} attaches {earlier}; it grows"
    )
    assert json.loads(user.adopt(earlier, "--json"))["said"] == f"{earlier} already belongs to resnet"


def test_what_follows_is_said_before_it_is_confirmed(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    earlier = user.volume(size=200, zone=f"{REGION}c")
    with pytest.raises(JobError, match="confirmation is impossible; use --yes"):
        user.adopt()
    said = capsys.readouterr().err
    assert f"the stack has no subnet in {REGION}c\n" in said
    assert f"takes a snapshot, creates its own volume from it, and then deletes {earlier}" in said
    assert user.tags(earlier) == NAME


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({**NAME, "gpu-spot:stack": "prod", "gpu-spot:job": "vit"}, "belongs to job 'vit' of stack 'prod'"),
        ({**NAME, "gpu-spot:stack": "prod"}, "belongs to job 'none' of stack 'prod'"),
        ({**NAME, "gpu-spot:job": "vit"}, "belongs to job 'vit' of stack 'none'"),
    ],
)
def test_the_volume_of_another_job_or_stack_is_not_adopted(
    user: User, labels: dict[str, str], message: str
) -> None:
    foreign = user.volume(labels)
    with pytest.raises(JobError, match=message):
        user.adopt(foreign, "--yes")
    assert user.tags(foreign) == labels


def test_an_attached_volume_and_a_missing_one_are_not_adopted(user: User) -> None:
    attached, instance = user.volume(), user.stack.instance("vit")
    user.ec2.attach_volume(VolumeId=attached, InstanceId=instance, Device="/dev/sdf")
    with pytest.raises(JobError, match=f"{attached} is attached to {instance}; detach it first"):
        user.adopt("--yes")
    for missing in ("vol-0123456789abcdef0", "snap-0123456789abcdef0", "data"):
        with pytest.raises(JobError, match=f"volume '{missing}' does not exist; name a volume"):
            user.adopt(missing, "--yes")


def test_a_job_with_a_volume_adopts_no_other(deployed: User) -> None:
    assert tasks.volume(deployed.launch(), "up") == 0
    earlier = deployed.volume()
    with pytest.raises(
        JobError, match=f"job 'resnet' already has volume {deployed.current}; name a job without"
    ):
        deployed.adopt("--yes")
    assert deployed.tags(earlier) == NAME


def test_a_job_with_only_a_tagged_volume_adopts_no_other(user: User) -> None:
    created = user.volume(names.job_tags("dev", "resnet"))
    earlier = user.volume()
    with pytest.raises(JobError, match=f"job 'resnet' already has {created} .*; name a job without a volume"):
        user.adopt(earlier, "--yes")


def test_a_key_that_the_role_may_not_use_is_refused(user: User) -> None:
    key = user.stack("kms").create_key()["KeyMetadata"]["Arn"]
    response = user.ec2.create_volume(AvailabilityZone=ZONE, Size=1, Encrypted=True, KmsKeyId=key)
    with pytest.raises(
        JobError, match=rf"is encrypted with {key}, which the job's role may not use.*alias/aws/ebs"
    ):
        user.adopt(response["VolumeId"], "--yes")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit", {}, "job 'vit' does not exist; jobs on instances in the stack file: resnet"),
        ("resnet", {"volumeGiB": 0, "checkpoints": "files"}, "job 'resnet' has volumeGiB 0; name a job with"),
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
