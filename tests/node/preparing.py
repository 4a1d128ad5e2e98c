"""Instances that prepare a dataset: the agent's real subcommands on moto, on disks that keep content."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3

from tests.node import configs
from tests.node.clocks import FakeClock
from tests.node.jobs import IMAGE, REGION
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.aws.imds import IDENTITY
from userdata.agent.machine.errors import AgentError

GROUP = "imagenet-data"
PARAMETER = f"/gpu-spot/dev/groups/{GROUP}/prepared"
FINISHED = f"/gpu-spot/dev/groups/{GROUP}/finished"
DATASET = "imagenet@1"


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

    def run(self, argv: Sequence[str], stdin: str = "", environment: Any = None) -> str:
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
        self.server.documents[IDENTITY] = json.dumps(
            {
                "instanceId": instance,
                "accountId": "123456789012",
                "availabilityZone": f"{REGION}a",
                "region": REGION,
                "instanceType": "m7i.large",
            }
        )
        volume = {"sizeGib": 1, "snapshotEveryMinutes": 0}
        body = configs.training(group=GROUP, volume=volume, nvidia=False)
        body["prepared"] = {"dataset": DATASET, "group": GROUP, "parameter": PARAMETER}
        body["training"] |= {"job": GROUP, "finishedParameter": FINISHED, "maxRestarts": 1}
        home = self.folder / f"life-{self.lives}"
        made = tasks.Node(configs.load(body | changes), home / "run", self.server.url)
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
