"""The adapters against moto: DynamoDB's conditions, EC2's documents, S3's objects."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

from contracts.agent.config import Volume as VolumeConfig
from tests import models
from tests.node.configs import FakeClock
from tests.node.jobs import IMAGE, make_tables
from tests.node.world import World, WorldLease
from userdata.agent.aws.clients import AwsError
from userdata.agent.lease.store import LEASE_SECONDS, DynamoLease, Lease
from userdata.agent.machine.errors import (
    AgentError,
    LeaseLostError,
    RefusedError,
    TransientError,
    WorkCancelledError,
)
from userdata.agent.storage.volume import fill, model
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.storage.volume.fill import MARKER, S3Filler
from userdata.agent.storage.volume.model import CreateVolume
from userdata.agent.storage.volume.prepared import PreparedFiller

REGION = "us-west-2"


@pytest.fixture(autouse=True)
def aws() -> Iterator[None]:
    with models.moto():
        yield


def dynamo_stores(clock: FakeClock) -> tuple[DynamoLease, DynamoLease]:
    client = make_tables("jobs")
    first, second = (DynamoLease(client, "jobs", "resnet", i, clock) for i in ("i-1", "i-2"))
    return first, second


def world_stores(clock: FakeClock) -> tuple[DynamoLease, DynamoLease]:
    world = World(clock)
    return WorldLease(world, "i-1"), WorldLease(world, "i-2")


@pytest.mark.parametrize("stores", [dynamo_stores, world_stores])
def test_the_lease_and_its_double_keep_the_same_contract(stores: Any, clock: FakeClock) -> None:
    first, second = stores(clock)
    assert first.acquire() == Lease(1, None, 0)
    assert second.acquire() is None
    first.commit(1, "vol-1")
    assert first.acquire() == Lease(2, "vol-1", 1)  # the same instance again, after a crash
    with pytest.raises(LeaseLostError):
        first.commit(1, "vol-stale")
    first.renew(2)
    clock.advance(LEASE_SECONDS - 5)
    first.claim(2)  # a claim extends the lease
    clock.advance(10)
    assert second.acquire() is None
    clock.advance(LEASE_SECONDS)
    assert second.acquire() == Lease(3, "vol-1", 2)
    for stale in (first.renew, first.claim, first.release):
        with pytest.raises(LeaseLostError):
            stale(2)
    with pytest.raises(LeaseLostError):
        second.adopt(3, 9, "vol-2")
    second.release(3)
    assert first.acquire() == Lease(4, "vol-1", 2)


@pytest.mark.parametrize("stores", [dynamo_stores, world_stores])
def test_adoption_goes_on_under_the_new_token(stores: Any, clock: FakeClock) -> None:
    first, _ = stores(clock)
    first.acquire()
    first.adopt(1, 10, "vol-1")
    first.claim(10)
    assert first.acquire() == Lease(11, "vol-1", 10)


def test_a_missing_table_is_no_lost_lease(clock: FakeClock) -> None:
    client = boto3.client("dynamodb", region_name=REGION)
    with pytest.raises(AgentError, match="job table nowhere, job resnet: ResourceNotFound") as error:
        DynamoLease(client, "nowhere", "resnet", "i-1", clock).acquire()
    assert not isinstance(error.value, LeaseLostError)


def ebs(**config: Any) -> AwsEbs:
    client = boto3.client("ec2", region_name=REGION)
    return AwsEbs(client, "dev", "resnet", "resnet", VolumeConfig(**config))


@pytest.mark.parametrize("status", [200, 403, 503])
def test_a_page_in_place_of_an_answer_is_a_transient_error(status: int) -> None:
    """Of a load balancer or a proxy; botocore cannot parse it, or names it by its status."""
    client: Any = boto3.client("ec2", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))
    page = AWSResponse("https://ec2", status, {}, SimpleNamespace(stream=lambda: [b"<html>"]))
    client.meta.events.register_first("before-send.ec2", lambda **_: page)
    with pytest.raises(TransientError):
        AwsEbs(client, "dev", "resnet", "resnet", VolumeConfig()).volumes()


def test_a_volume_goes_through_its_life_in_ec2() -> None:
    client, adapter = boto3.client("ec2", region_name=REGION), ebs(size_gib=7)
    placement = {"AvailabilityZone": f"{REGION}a"}
    run = client.run_instances(
        ImageId=IMAGE, MinCount=1, MaxCount=1, Placement=placement, InstanceType="t3.micro"
    )
    instance = run["Instances"][0]["InstanceId"]
    home = adapter.create_volume(f"{REGION}a", 4, "i-1", CreateVolume(None, None))
    [seen] = adapter.volumes()
    assert dataclasses.replace(seen, state="available") == model.EbsVolume(
        home, f"{REGION}a", "available", None, None, None, 4, None, "preparing", 7, 125, "i-1"
    )
    [document] = client.describe_volumes(VolumeIds=[home])["Volumes"]
    assert (document["Size"], document["Encrypted"], document["VolumeType"]) == (7, True, "gp3")
    adapter.mark_live(home, 5)
    adapter.attach(home, instance, "/dev/sdf")
    [seen] = adapter.volumes()
    assert (seen.instance, seen.attachment, seen.device, seen.token, seen.tag_state) == (
        instance,
        "attached",
        "/dev/sdf",
        5,
        "live",
    )
    adapter.detach(home, instance)
    snapshot = adapter.create_snapshot(home, 6)
    [copy] = adapter.snapshots()
    assert (copy.id, copy.source, copy.token) == (snapshot, home, 6)
    moved = adapter.create_volume(f"{REGION}b", 6, "i-1", CreateVolume(snapshot, home))
    assert {v.id: v.source for v in adapter.volumes()} == {home: None, moved: home}
    for _ in range(2):  # one that is gone is deleted
        assert adapter.delete_volume(home)
        assert adapter.delete_snapshot(snapshot)
    assert [v.id for v in adapter.volumes()] == [moved]


def test_the_volume_of_another_job_is_not_ours() -> None:
    ebs().create_volume(f"{REGION}a", 1, "i-1", CreateVolume(None, None))
    client = boto3.client("ec2", region_name=REGION)
    assert AwsEbs(client, "dev", "resnet", "other", VolumeConfig()).volumes() == ()
    assert AwsEbs(client, "prod", "resnet", "resnet", VolumeConfig()).volumes() == ()


class Recorder:
    """An EC2 client that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.asked.append((operation, arguments))
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def test_descriptions_are_paged() -> None:
    one = {"VolumeId": "vol-1", "AvailabilityZone": "a", "State": "available", "Size": 1}
    client = Recorder({"Volumes": [one], "NextToken": "n"}, {"Volumes": [{**one, "VolumeId": "vol-2"}]})
    found = AwsEbs(client, "dev", "g", "j", VolumeConfig()).volumes()  # type: ignore[arg-type]
    assert [v.id for v in found] == ["vol-1", "vol-2"]
    assert client.asked[1][1]["NextToken"] == "n"


def test_a_repeated_creation_has_the_same_client_token_and_a_copy_its_rate() -> None:
    client = Recorder(*[{"VolumeId": "vol-1"}] * 5)
    adapter = AwsEbs(client, "dev", "g", "j", VolumeConfig(initialization_rate_mib=300))  # type: ignore[arg-type]
    adapter.create_volume("a", 1, "i-1", CreateVolume("snap-1", "vol-0"))
    adapter.create_volume("a", 1, "i-1", CreateVolume("snap-1", "vol-0"))
    adapter.create_volume("a", 2, "i-1", CreateVolume("snap-1", "vol-0"))
    for _ in range(2):  # after one that failed
        adapter.create_volume("a", 1, "i-1", CreateVolume("snap-1", "vol-0", 0, 1))
    first, same, lease, again, still = (arguments["ClientToken"] for _, arguments in client.asked)
    assert (first, again) == (same, still)
    assert len({first, lease, again}) == 3
    assert client.asked[0][1]["VolumeInitializationRate"] == 300
    assert "Size" not in client.asked[0][1]


def test_a_volume_and_its_copy_are_under_the_key_that_is_named() -> None:
    key = "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"
    client = Recorder(*[{"VolumeId": "vol-1"}] * 3)
    adapter = AwsEbs(client, "dev", "g", "j", VolumeConfig(kms_key_arn=key))  # type: ignore[arg-type]
    adapter.create_volume("a", 1, "i-1", CreateVolume(None, None))
    adapter.create_volume("a", 2, "i-1", CreateVolume("snap-1", "vol-0"))
    AwsEbs(client, "dev", "g", "j", VolumeConfig()).create_volume("a", 3, "i-1", CreateVolume(None, None))  # type: ignore[arg-type]
    assert [asked.get("KmsKeyId") for _, asked in client.asked] == [key, key, None]


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("PendingSnapshotLimitExceeded", True),
        ("RequestLimitExceeded", True),
        ("SnapshotLimitExceeded", False),
        ("UnauthorizedOperation", False),
        ("InvalidParameterDependency", False),
        ("VolumeLimitExceeded", False),
        ("VolumeInUse", True),
    ],
)
def test_transient_errors_are_distinguished(code: str, passes: bool) -> None:
    error = ClientError({"Error": {"Code": code, "Message": "m"}}, "AttachVolume")
    adapter = AwsEbs(Recorder(error), "dev", "g", "j", VolumeConfig())  # type: ignore[arg-type]
    with pytest.raises(AgentError, match=code) as caught:
        adapter.attach("vol-1", "i-1", "/dev/sdf")
    assert isinstance(caught.value, TransientError) is passes


def test_a_deletion_that_ec2_refuses_is_no_error_and_one_that_may_pass_is() -> None:
    refused, later = (
        ClientError({"Error": {"Code": code, "Message": "m"}}, "DeleteSnapshot")
        for code in ("InvalidSnapshot.InUse", "RequestLimitExceeded")
    )
    adapter = AwsEbs(Recorder(refused, later), "dev", "g", "j", VolumeConfig())  # type: ignore[arg-type]
    assert not adapter.delete_snapshot("snap-1")
    with pytest.raises(TransientError):
        adapter.delete_snapshot("snap-1")


@pytest.fixture
def bucket() -> Any:
    client = boto3.client("s3", region_name=REGION)
    client.create_bucket(Bucket="datasets", CreateBucketConfiguration={"LocationConstraint": REGION})
    for key, body in {
        "imagenet/a": b"1",
        "imagenet/sub/b": b"22",
        "imagenet/sub/": b"",
        "other/c": b"3",
    }.items():
        client.put_object(Bucket="datasets", Key=key, Body=body)
    return client


def test_a_dataset_is_copied_and_marked_when_complete(bucket: Any, tmp_path: Path) -> None:
    filler = S3Filler(bucket, "s3://datasets/imagenet/", tmp_path)
    assert not filler.is_complete()
    polls: list[int] = []
    filler.fill(lambda: polls.append(1))
    assert filler.is_complete()
    assert polls
    found = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert found.pop(MARKER)
    assert found == {"a": b"1", "sub/b": b"22"}
    assert not S3Filler(bucket, "s3://datasets/other/", tmp_path).is_complete()


def test_a_copy_that_breaks_off_is_not_complete_and_goes_on(bucket: Any, tmp_path: Path) -> None:
    filler = S3Filler(bucket, "s3://datasets/imagenet/", tmp_path)

    def lost() -> None:
        raise LeaseLostError("lost")

    with pytest.raises(LeaseLostError):
        filler.fill(lost)
    assert not filler.is_complete()
    (tmp_path / "a").write_bytes(b"truncated")
    filler.fill(lambda: None)
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_copy_that_an_instance_did_not_survive_takes_no_more_space(bucket: Any, tmp_path: Path) -> None:
    seen: set[str] = set()
    for _ in range(2):
        filler = S3Filler(bucket, "s3://datasets/imagenet/sub/", tmp_path)
        filler._check_cancelled = lambda _: seen.update(p.name for p in tmp_path.iterdir())
        filler.fill(lambda: None)
        (tmp_path / "b").unlink()
        (tmp_path / MARKER).unlink()
    [temporary] = seen
    (tmp_path / temporary).write_bytes(b"of a copy that was killed")
    S3Filler(bucket, "s3://datasets/imagenet/sub/", tmp_path).fill(lambda: None)
    assert {p.name for p in tmp_path.iterdir()} == {"b", MARKER}


@pytest.mark.parametrize(
    "error", [S3DownloadFailedError("replaced"), RetriesExceededError(OSError("replaced"))]
)
def test_an_object_that_is_replaced_meanwhile_is_copied_at_the_next_try(
    bucket: Any, tmp_path: Path, error: Exception
) -> None:
    bucket.download_fileobj = lambda *_, **__: raise_(error)
    with pytest.raises(AwsError, match=r"^object imagenet/.*: replaced$"):
        S3Filler(bucket, "s3://datasets/imagenet/", tmp_path).fill(lambda: None)


def test_a_large_object_ends_with_the_copy_that_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        def get_paginator(self, operation: str) -> Any:
            item = {"Key": "imagenet/a", "Size": 3, "LastModified": datetime.now(UTC)}
            return SimpleNamespace(paginate=lambda **_: [{"Contents": [item]}])

        def download_fileobj(self, bucket: str, key: str, file: Any, Callback: Any) -> None:  # noqa: N803
            while True:  # until it is aborted
                Callback(1)
                time.sleep(0.001)

    monkeypatch.setattr(fill, "_KEEP_ALIVE_INTERVAL_SECONDS", 0.01)
    filler, asked = S3Filler(Client(), "s3://datasets/imagenet/", tmp_path), []  # type: ignore[arg-type, var-annotated]

    def taken() -> None:
        asked.append(1)
        if len(asked) > 2:
            raise WorkCancelledError("taken")

    with pytest.raises(WorkCancelledError):
        filler.fill(taken)
    assert not filler.is_complete()


def test_an_empty_prefix_and_a_key_that_climbs_are_refused(bucket: Any, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="has no objects; use a prefix with objects"):
        S3Filler(bucket, "s3://datasets/nothing/", tmp_path).fill(lambda: None)
    bucket.put_object(Bucket="datasets", Key="evil/../../x", Body=b"")
    with pytest.raises(RefusedError, match="is outside the dataset's directory"):
        S3Filler(bucket, "s3://datasets/evil/", tmp_path).fill(lambda: None)


@pytest.mark.parametrize("code", ["NoSuchBucket", "AccessDenied"])
def test_a_bucket_that_is_not_there_or_denied_is_an_operators_error(code: str, tmp_path: Path) -> None:
    client: Any = boto3.client("s3", region_name=REGION)
    if code == "AccessDenied":
        error = ClientError({"Error": {"Code": code, "Message": "m"}}, "ListObjectsV2")
        client.get_paginator = lambda name: SimpleNamespace(paginate=lambda **_: raise_(error))
    with pytest.raises(RefusedError, match=f"dataset s3://typo/x/: {code}: .*; correct the bucket's name"):
        S3Filler(client, "s3://typo/x/", tmp_path).fill(lambda: None)


def raise_(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("code", "listing", "is_refused"),
    [
        ("AccessDenied", None, True),
        ("InvalidObjectState", None, True),  # in Glacier
        ("403", None, True),
        ("403", "AccessDenied", True),
        ("403", "RequestTimeTooSkewed", False),
        ("403", "ExpiredToken", False),
        ("404", None, False),
        ("SlowDown", None, False),
    ],
)
def test_an_object_is_refused_only_if_it_alone_is_denied(
    bucket: Any, tmp_path: Path, code: str, listing: str | None, is_refused: bool
) -> None:
    def refuse(code: str) -> Any:
        return raise_(ClientError({"Error": {"Code": code, "Message": "m"}}, "HeadObject"))

    bucket.download_fileobj = lambda *_, **__: refuse(code)
    if listing is not None:
        bucket.list_objects_v2 = lambda **_: refuse(listing)
    with pytest.raises(AgentError, match=listing or code) as caught:
        S3Filler(bucket, "s3://datasets/imagenet/", tmp_path).fill(lambda: None)
    assert isinstance(caught.value, RefusedError) is is_refused


def test_a_marker_that_cannot_be_read_is_not_another_dataset(tmp_path: Path) -> None:
    assert not PreparedFiller("imagenet@1", tmp_path).is_complete()
    (tmp_path / MARKER).mkdir()  # reading it is an error, as of a disk
    with pytest.raises(TransientError, match="Is a directory"):
        PreparedFiller("imagenet@1", tmp_path).is_complete()
    with pytest.raises(TransientError, match="Is a directory"):
        PreparedFiller("imagenet@1", tmp_path).fill(lambda: None)


def test_no_dataset_is_complete_at_once(tmp_path: Path) -> None:
    assert S3Filler(None, "", tmp_path).is_complete()
