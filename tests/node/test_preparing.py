"""Prepared datasets: one published snapshot in spite of crashes, and no copies by its users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest

from contracts.agent.names import SNAPSHOT_NAME
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import IMAGE, REGION
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, LeaseLostError, RefusedError
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.work.training import checkout
from userdata.agent.work.training.variables import done_file

GROUP = "imagenet-data"
PARAMETER = f"/gpu-spot/dev/groups/{GROUP}/prepared"
FINISHED = f"/gpu-spot/dev/groups/{GROUP}/finished"
DATASET = "imagenet@1"


def denied(*_: Any) -> str:
    raise AgentError("ec2 create_snapshot: UnauthorizedOperation")


class DeadError(BaseException):
    """The instance is gone: nothing of its own catches this."""


class FolderHost(DiskHost):
    """A mounted volume is a link to a folder; a snapshot is none, so content stays with its volume."""

    def __init__(self, ec2: Any, folder: Path, data: Path) -> None:
        super().__init__(ec2)
        self.folder, self.data = folder, data
        self.ran: list[list[str]] = []

    def filesystem(self, device: str) -> str | None:
        return "xfs" if (self.folder / Path(device).name).exists() else None

    def make_filesystem(self, device: str) -> None:
        (self.folder / Path(device).name).mkdir(parents=True)

    def mounted(self, path: Path) -> str | None:
        return f"/dev/{path.readlink().name}" if path.is_symlink() else None

    def mount(self, device: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.folder / Path(device).name)

    def unmount(self, path: Path) -> None:
        path.unlink()

    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        if argv[0] == "install":
            Path(argv[-1]).mkdir(parents=True, exist_ok=True)
        return ""


class Command:
    """What prepares: ends at once with ``code``, after ``work`` in the dataset's folder."""

    def __init__(self, work: Callable[[Path], int], environment: dict[str, str]) -> None:
        self.pid = 4_000_000  # above what Linux gives
        self._code = work(Path(environment["GPU_SPOT_DATASETS"]))

    def poll(self) -> int:
        return self._code


class Region:
    """A stack's region, in which one instance lives after another."""

    def __init__(self, ec2: Any, server: MetadataServer, clock: FakeClock, folder: Path) -> None:
        self.ec2, self.server, self.clock, self.folder = ec2, server, clock, folder
        self.lives = 0
        self.made: list[list[str]] = []
        self.ssm = boto3.client("ssm", region_name=REGION)
        for name in (PARAMETER, FINISHED):
            self.ssm.put_parameter(Name=name, Value="none", Type="String")

    def node(self, **changes: Any) -> tasks.Node:
        """A new instance that prepares; ``changes`` are of its configuration."""
        self.lives += 1
        ran = self.ec2.run_instances(
            ImageId=IMAGE, MinCount=1, MaxCount=1, Placement={"AvailabilityZone": f"{REGION}a"}
        )
        instance = ran["Instances"][0]["InstanceId"]
        self.server.identify(instance, f"{REGION}a", "m7i.large")
        volume = {"sizeGib": 1, "snapshotEveryMinutes": 0}
        body = configs.training(group=GROUP, volume=volume, nvidia=False)
        body["prepared"] = {"dataset": DATASET, "group": GROUP, "parameter": PARAMETER}
        body["training"] |= {"job": GROUP, "finishedParameter": FINISHED, "maxRestarts": 1}
        home = self.folder / f"life-{self.lives}"
        made = tasks.Node(configs.load(body | changes), home / "run", self.server.url)
        made.run_in_background = at_once
        made.data = home / "data"
        made.clock, made.host = self.clock, FolderHost(self.ec2, self.folder / "volumes", made.data)
        made.on_sigterm = lambda act: None
        made.spawn = lambda argv, environment, place: Command(self.work, environment)
        return made

    def work(self, folder: Path) -> int:
        """What the command does unless a test says otherwise."""
        self.made.append(sorted(path.name for path in folder.iterdir()))
        (folder / "shard-0").write_text("made")
        return 0

    def live(self, node: tasks.Node) -> int:
        """Bring the volume, run, and again after an error, as systemd does."""
        for _ in range(5):
            with suppress(AgentError):
                tasks.volume(node, "up")
                return tasks.run(node)
            self.clock.sleep(10)
        raise AssertionError("it does not come to an end")

    def end(self, node: tasks.Node) -> None:
        """The instance is gone, and its lease with time."""
        instance = node.identity.instance
        for volume in self.volumes():
            if any(one["InstanceId"] == instance for one in volume["Attachments"]):
                self.ec2.detach_volume(VolumeId=volume["VolumeId"], InstanceId=instance)
        self.ec2.terminate_instances(InstanceIds=[instance])
        self.clock.advance(600)

    def volumes(self) -> list[Any]:
        ours = [{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
        found: list[Any] = self.ec2.describe_volumes(Filters=ours)["Volumes"]
        return found

    def snapshots(self) -> list[str]:
        """Of datasets, and of what their volumes' moves leave."""
        ours = [{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
        return sorted(one["SnapshotId"] for one in self.ec2.describe_snapshots(Filters=ours)["Snapshots"])

    def item(self, job: str = GROUP) -> dict[str, str]:
        client = boto3.client("dynamodb", region_name=REGION)
        found = client.get_item(TableName="jobs", Key={"job": {"S": job}}).get("Item", {})
        return {name: next(iter(value.values())) for name, value in found.items()}  # type: ignore[call-overload]

    def said(self) -> tuple[str, str]:
        """What the parameters `prepared` and `finished` say."""
        prepared, finished = (
            self.ssm.get_parameter(Name=name)["Parameter"]["Value"] for name in (PARAMETER, FINISHED)
        )
        return prepared, finished


RUN = f"{configs.REVISION}/{DATASET}"
PREPARED = {"dataset": DATASET, "group": GROUP, "parameter": "/gpu-spot/dev/groups/imagenet-data/prepared"}


@pytest.fixture
def region(
    aws: Any,
    metadata_server: MetadataServer,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Region:
    monkeypatch.setattr(checkout, "checkout", lambda *given: None)
    # To make one takes longer than all that it is asked.
    monkeypatch.setattr(clients, "_client", cache(clients._client))
    return Region(aws, metadata_server, clock, tmp_path)


def is_over(region: Region) -> None:
    """One snapshot is published, everything else is deleted, and the controller is notified."""
    item = region.item()
    assert region.snapshots() == [item[DATASET]]
    assert region.volumes() == []
    assert region.said() == (DATASET, RUN)
    assert item["state"] == "done"
    assert not {"volume", "holder"} & item.keys()


def test_a_dataset_is_built_and_published(region: Region) -> None:
    node, work = region.node(), region.work

    def moved(folder: Path) -> int:
        """Leave what the move of the volume from another zone leaves: its snapshot."""
        [home] = region.volumes()
        tags = [
            *(one for one in home["Tags"] if one["Key"] != "Name"),
            {"Key": "Name", "Value": SNAPSHOT_NAME},
        ]
        specification: Any = [{"ResourceType": "snapshot", "Tags": tags}]
        region.ec2.create_snapshot(VolumeId=home["VolumeId"], TagSpecifications=specification)
        return work(folder)

    region.work = moved  # type: ignore[method-assign]
    assert region.live(node) == 0
    is_over(region)
    [shutdown] = [argv for argv in node.host.ran if argv[0] == "shutdown"]  # type: ignore[attr-defined]
    assert shutdown[1] == "--poweroff"
    # Another instance of the group, which is not yet let go, does nothing more.
    assert region.live(region.node()) == 0
    assert region.made == [[]]
    is_over(region)


def test_the_next_instance_continues_a_partial_dataset(region: Region) -> None:
    def dies(folder: Path) -> int:
        (folder / "half").write_text("half")
        raise DeadError

    first, work = region.node(), region.work
    region.work = dies  # type: ignore[method-assign]
    with pytest.raises(DeadError):
        region.live(first)
    region.end(first)
    assert region.said() == ("none", "none")
    region.work = work  # type: ignore[method-assign]
    region.live(region.node())
    assert region.made == [["half"]]
    is_over(region)


def dies_at(monkeypatch: pytest.MonkeyPatch, fatal: int | None, begins: Callable[[], bool]) -> list[str]:
    """Kill whoever makes an AWS call, before or after it has had effect: the ``fatal``-th moment so."""
    moments: list[str] = []
    make = clients._client.__wrapped__  # type: ignore[attr-defined]

    def watched(service: str, region: str, **more: Any) -> Any:
        client = make(service, region, **more)

        def strike(when: str, **event: Any) -> None:
            if begins():
                moments.append(f"{when} {event['model'].name}")
                if fatal is not None and len(moments) - 1 == fatal:
                    raise DeadError(moments[-1])

        client.meta.events.register("before-call", lambda **event: strike("before", **event))
        client.meta.events.register("after-call", lambda **event: strike("after", **event))
        return client

    monkeypatch.setattr(clients, "_client", watched)
    return moments


READS = tuple(f"after {verb}" for verb in ("Describe", "Get", "Head", "List", "Query"))


def moments(region: Region, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with monkeypatch.context() as patch:
        found = dies_at(patch, None, lambda: bool(region.made))
        region.live(region.node())
    return found


@pytest.mark.soak
def test_whenever_an_instance_dies_after_its_work_one_snapshot_counts(
    region: Region,
    aws: Any,
    metadata_server: MetadataServer,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = moments(region, monkeypatch)
    assert {"after CreateSnapshot", "before UpdateItem", "after DeleteVolume", "after PutParameter"} <= set(
        found
    )
    # Nothing of a dead instance is left but what it has written: between two writes all moments are one.
    written = [n for n, moment in enumerate(found) if not moment.startswith(("before ", *READS))]
    for fatal in (0, *written):
        boto3.client("dynamodb", region_name=REGION).delete_item(TableName="jobs", Key={"job": {"S": GROUP}})
        for snapshot in region.snapshots():
            aws.delete_snapshot(SnapshotId=snapshot)
        copied = Region.__new__(Region)
        copied.__dict__ |= region.__dict__ | {"made": [], "folder": tmp_path / f"fatal-{fatal}"}
        for name in (PREPARED["parameter"], FINISHED):
            copied.ssm.put_parameter(Name=name, Value="none", Type="String", Overwrite=True)
        first = copied.node()
        with monkeypatch.context() as patch:
            struck = dies_at(patch, fatal, lambda copied=copied: bool(copied.made))  # type: ignore[misc]
            with pytest.raises(DeadError):
                copied.live(first)
        copied.end(first)
        # The controller scales the group in once it is notified; else another instance starts.
        if copied.said() != (DATASET, RUN):
            copied.live(copied.node())
        if fatal >= found.index("before CreateSnapshot"):
            assert len(copied.made) == 1, struck[-1]  # complete is complete: no command runs again
        try:
            if copied.said() == (DATASET, RUN) and copied.item().get("holder") == first.identity.instance:
                continue  # it died as it gave the lease back, which runs out
            is_over(copied)
        except AssertionError as error:
            raise AssertionError(f"{struck[-1]}: {error}") from error


def test_of_two_at_once_the_leases_holder_counts(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, second = AwsEbs.create_dataset_snapshot, list[str]()

    def overtaken(self: AwsEbs, volume: str, token: int, dataset: str) -> str:
        """The first hangs after its snapshot, until another has come, published it and gone."""
        snapshot = keep(self, volume, token, dataset)
        if not second:
            second.append(snapshot)
            region.end(first)
            region.live(region.node())
        return snapshot

    monkeypatch.setattr(AwsEbs, "create_dataset_snapshot", overtaken)
    first = region.node()
    tasks.volume(first, "up")
    with pytest.raises(LeaseLostError):
        tasks.run(first)
    is_over(region)
    assert second == [region.item()[DATASET]]


def test_a_process_killed_while_it_publishes_continues_its_snapshot(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, create = region.node(), AwsEbs.create_dataset_snapshot
    made: list[str] = []

    def killed(self: AwsEbs, volume: str, token: int, dataset: str) -> str:
        made.append(create(self, volume, token, dataset))
        raise DeadError

    monkeypatch.setattr(AwsEbs, "create_dataset_snapshot", killed)
    with pytest.raises(DeadError):
        region.live(node)
    # The volume is attached and not mounted: the command must not run on the root disk.
    with pytest.raises(AgentError, match="the data volume is not mounted"):
        tasks.run(node)
    assert "holder" not in region.item()
    region.live(node)
    assert region.made == [[]]
    assert made == [region.item()[DATASET]]
    is_over(region)


def test_a_command_that_fails_for_good_ends_and_no_gpu_is_started(region: Region) -> None:
    runs: list[int] = []

    def fails(folder: Path) -> int:
        runs.append(1)
        return 3

    region.work = fails  # type: ignore[method-assign]
    region.live(region.node())
    assert len(runs) == 2  # maxRestarts 1
    assert region.said() == ("none", RUN)
    assert region.item()["state"] == "failed"
    assert region.snapshots() == []


def test_a_snapshot_that_cannot_be_made_ends_it_too(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refused(self: AwsEbs, volume: str, token: int, dataset: str) -> str:
        tried.append(volume)
        raise AgentError("ec2 create_snapshot: SnapshotLimitExceeded")

    monkeypatch.setattr(AwsEbs, "create_dataset_snapshot", refused)
    node = region.node()
    node.host.run = (
        lambda argv, timeout=60, stdin="", environment=None: (  # type: ignore[method-assign]
            str(tasks.volume(node, "up")) if list(argv[:2]) == ["systemctl", "restart"] else made(argv)
        )
    )

    def made(argv: Any) -> str:
        if argv[0] == "install":
            Path(argv[-1]).mkdir(parents=True, exist_ok=True)
        return ""

    region.live(node)
    assert len(tried) == 2
    assert len(region.made) == 1
    assert region.said() == ("none", RUN)
    assert region.item()["state"] == "failed"
    assert not {"holder"} & region.item().keys()


def test_another_version_finds_nothing_of_what_failed(region: Region) -> None:
    def fails(folder: Path) -> int:
        (folder / "half").write_text("of version 1")
        return 3

    work, region.work = region.work, fails  # type: ignore[method-assign]
    region.live(region.node())
    region.work = work  # type: ignore[method-assign]
    region.live(region.node(prepared=PREPARED | {"dataset": "imagenet@2"}))
    assert region.made == [[]]
    assert region.item().keys() >= {"imagenet@2"}
    assert region.said()[0] == "imagenet@2"


def test_another_version_does_not_take_the_end_of_one_that_failed_for_its_own(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of version 1 said that it was done, but could not be published; that of version 2 fails."""

    def ends(folder: Path, code: int) -> int:
        checkpoints = folder.parent / "checkpoints" / GROUP
        checkpoints.mkdir(parents=True, exist_ok=True)
        region.made.append([path.name for path in checkpoints.iterdir()])
        if not code:
            done_file(checkpoints, configs.REVISION).touch()
        return code

    region.work = lambda folder: ends(folder, 0)  # type: ignore[method-assign]
    with monkeypatch.context() as patch:
        patch.setattr(AwsEbs, "create_dataset_snapshot", denied)
        region.live(region.node())
    assert region.item()["state"] == "failed"
    region.work = lambda folder: ends(folder, 3)  # type: ignore[method-assign]
    region.live(region.node(prepared=PREPARED | {"dataset": "imagenet@2"}))
    assert region.item()["state"] == "failed"
    assert region.snapshots() == []
    assert region.made == [[], [], []]


def test_a_version_that_was_made_before_is_said_again_without_being_made(region: Region) -> None:
    region.live(region.node())
    region.live(region.node(prepared=PREPARED | {"dataset": "imagenet@2"}))
    assert len(region.snapshots()) == 2  # each version keeps its own
    region.live(region.node())
    assert region.said()[0] == DATASET
    assert len(region.made) == 2


def user(region: Region, **changes: Any) -> tasks.Node:
    """An instance of a job that uses the dataset."""
    node = region.node()
    node.config = configs.load(configs.training(volume={"sizeGib": 1}, prepared=PREPARED, **changes))
    return node


def test_a_jobs_first_volume_is_made_from_the_snapshot(region: Region) -> None:
    region.live(region.node())
    node = user(region)
    host: Any = node.host
    of_snapshot = {"datasets/.gpu-spot-dataset.json": '{"dataset": "imagenet@1"}', "datasets/shard-0": "made"}

    def filesystem(device: str) -> str | None:
        """What EBS copies: the one folder that there is no snapshot of here."""
        folder = host.folder / Path(device).name
        [volume] = region.volumes()
        if not folder.exists() and volume["SnapshotId"]:
            for name, text in of_snapshot.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
        return "xfs" if folder.exists() else None

    host.filesystem = filesystem
    assert tasks.volume(node, "up") == 0
    [volume] = region.volumes()
    assert volume["SnapshotId"] == region.item()[DATASET]
    assert region.item("resnet")["volume"] == volume["VolumeId"]
    assert (node.data / "datasets" / "shard-0").read_text() == "made"


def test_a_job_without_its_dataset_waits_or_fails_with_a_reason(region: Region, aws: Any) -> None:
    with pytest.raises(AgentError, match="dataset imagenet@1: imagenet-data has not prepared it yet"):
        tasks.volume(user(region), "up")
    region.clock.advance(600)
    region.live(region.node())
    aws.delete_snapshot(SnapshotId=region.item()[DATASET])
    region.clock.advance(600)
    with pytest.raises(RefusedError, match=r"was deleted; raise prepare\.version"):
        tasks.volume(user(region), "up")


def test_a_volume_with_another_dataset_is_rejected(region: Region) -> None:
    node = region.node()
    node.config = configs.load(configs.training(volume={"sizeGib": 1}))
    tasks.volume(node, "up")
    tasks.volume(node, "down")
    with pytest.raises(RefusedError, match="holds no dataset, not imagenet@1; rename the job"):
        tasks.volume(user(region), "up")
