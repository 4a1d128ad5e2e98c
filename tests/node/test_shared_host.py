"""The subcommand `landlord` as the unit starts it: S3, DynamoDB and EC2 by moto, Docker in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3

from tests.node import configs, jobs
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.tenants.docker_double import DockerDouble, options
from tests.tenants.hosts import host, tenant
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.aws.imds import IDENTITY, PRIVATE_ADDRESS
from userdata.agent.tenants import codec


class Disks(DockerDouble):
    """Devices and mounts of volumes that are attached: all that a host mounts is there at once."""

    def __init__(self, ec2: Any) -> None:
        super().__init__()
        self.ec2, self.mounts, self.made = ec2, dict[Path, str](), set[str]()

    def device_of(self, volume: str) -> str | None:
        return f"/dev/{volume}"

    def filesystem(self, device: str) -> str | None:
        return "xfs" if device in self.made else None

    def make_filesystem(self, device: str) -> None:
        self.made.add(device)

    def mounted(self, path: Path) -> str | None:
        return self.mounts.get(path)

    def mount(self, device: str, path: Path) -> None:
        self.mounts[path] = device

    def capacity(self, device: str) -> int:
        return 20 * 2**30

    def grow(self, device: str, path: Path) -> None:
        assert self.mounts[path] == device


def test_tenants_of_the_list_run_with_volumes_of_their_own(
    aws: Any, clock: FakeClock, metadata_server: MetadataServer, tmp_path: Path
) -> None:
    zone = f"{jobs.REGION}a"
    where: Any = {"AvailabilityZone": zone}
    made = aws.run_instances(ImageId=jobs.IMAGE, MinCount=1, MaxCount=1, Placement=where)
    instance = made["Instances"][0]["InstanceId"]
    metadata_server.documents |= {
        IDENTITY: f'{{"instanceId": "{instance}", "availabilityZone": "{zone}", "region": "{jobs.REGION}",'
        ' "accountId": "123456789012", "instanceType": "g5.12xlarge"}',
        PRIVATE_ADDRESS: "10.0.1.5",
    }
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="agents")
    ada = tenant("ada", cpus=1, memory_gib=1, host_port=8001, container_port=80, secret="lab/ada")
    body = configs.service(sharedHost={"bucket": "agents", "jobTable": "jobs"}, nvidia=False, hooks=None)
    del body["service"]
    body["region"] = jobs.REGION
    secret = boto3.client("secretsmanager", region_name=jobs.REGION)
    secret.create_secret(Name="lab/ada", SecretString='{"API_KEY": "k3y"}')
    s3.put_object(Bucket="agents", Key=codec.key_of(body["group"]), Body=codec.encode([ada]))

    node = tasks.Node(configs.load(body), tmp_path / "run", metadata_server.url)
    node.clock, node.data, node.clients, node.host = clock, tmp_path / "data", clients, Disks(aws)
    node.kernel, node.shape = tmp_path / "kernel", host  # there is no control group
    node.run_in_background = lambda work: work()
    stops: list[Callable[[], None]] = []
    node.on_sigterm = stops.append
    slept: list[float] = []

    def stop_after(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 60:
            stops[-1]()

    clock.on_sleep = stop_after
    assert tasks.shared_host(node) == 0
    assert isinstance(node.host, Disks)
    assert list(node.host.pids()) == ["ada"]
    [argv] = [argv for argv in node.host.ran if argv[:2] == ["docker", "run"]]
    assert "10.0.1.5:8001:80/tcp" in options(argv, "--publish")
    assert "API_KEY=k3y\n" in Path(options(argv, "--env-file")[0]).read_text("utf-8")
    [volume] = [
        one
        for one in aws.describe_volumes()["Volumes"]
        if {"Key": "gpu-spot:job", "Value": f"{body['group']}-ada"} in one.get("Tags", [])
    ]
    assert volume["Size"] == ada.data_gib
    assert list(node.host.mounts) == [tmp_path / "data" / "tenants" / "ada"]
