"""Stack files of users, played from their declaration to what runs, each to its end."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from contracts import names
from gpu_spot.declared import stackfile
from lambdas.core.model import GroupRole, PurchaseOption
from packages.environments import ROOT
from pulumi_on_moto.emulator import ACCOUNT, AwsClients, sandbox
from pulumi_on_moto.running.server import serve
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import deployed
from tests.boot.cloud import RealTime
from tests.docs.test_guides import FILES
from tests.infra.declared import run
from tests.node.metadata import MetadataServer
from tests.real import containers as real
from tests.real.tenants import ADDRESS, SharedHost, shared_host, until
from tests.waiting import wait_until
from userdata.agent.aws.imds import LIFECYCLE_STATE
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.model import Tenant

WAITING: Final = 200
_REGION: Final = "us-west-2"
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": _REGION}
_LIBRARIES: Final = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "urllib3")
PROGRAM: Final = """
import base64, json, os, pathlib, time
import boto3

scratch = pathlib.Path(os.environ["GPU_SPOT_SCRATCH"])

def read(body):
    try:
        said = json.loads(body)
    except ValueError:  # Celery's
        said = json.loads(base64.b64decode(json.loads(base64.b64decode(body))["body"]))[1]
    if "TopicArn" in said:  # SNS's
        said = json.loads(said["Message"])
    if said["scan"] == "crash":
        os._exit(3)
    if (scratch / "slow").exists():
        time.sleep(1)
    text = boto3.client("s3").get_object(Bucket="scans", Key=said["scan"])["Body"].read().decode()
    with (scratch / "read").open("a") as file:
        file.write(text + "\\n")
    return text
"""
# What an instance has and this machine lacks: a driver with one GPU, and a root disk of its own.
_AGENT: Final = """
mount -t tmpfs none /proc/driver; mkdir -p /proc/driver/nvidia/gpus/0000:00:1e.0
mount -t tmpfs none /var/lib; mkdir /var/lib/gpu-spot; mount --bind {place}/state /var/lib/gpu-spot
cd {place}; exec {python} -m userdata.agent --config agent.json --run-dir {place}/run \\
  --metadata-url {metadata} work
"""


@dataclass
class ExistingQueue:
    """A queue with dead letters and a bucket that were there before the stack, and who sends to the queue."""

    clients: AwsClients

    def __post_init__(self) -> None:
        sqs, self.sent = self.clients("sqs"), 0
        self.dead = sqs.create_queue(QueueName="scans-dead")["QueueUrl"]
        redrive = {"deadLetterTargetArn": f"arn:aws:sqs:{_REGION}:{ACCOUNT}:scans-dead", "maxReceiveCount": 3}
        attributes = {"VisibilityTimeout": "10", "RedrivePolicy": json.dumps(redrive)}
        self.url = sqs.create_queue(QueueName="scans", Attributes=attributes)["QueueUrl"]
        place = {"LocationConstraint": _REGION}
        self.clients("s3").create_bucket(Bucket="scans", CreateBucketConfiguration=place)

    def scan(self, name: str) -> str:
        """Put a scan into the bucket; return a message that names it."""
        self.clients("s3").put_object(Bucket="scans", Key=name, Body=f"text of {name}".encode())
        return json.dumps({"scan": name})

    def send(self, message: str) -> None:
        self.clients("sqs").send_message(QueueUrl=self.url, MessageBody=message)
        self.sent += 1

    def send_by_celery(self, message: str) -> None:
        """Send what kombu does (its ``transport/SQS.py``): base64 of the envelope, whose body is base64."""
        body = _base64(json.dumps([[], json.loads(message), {}]))
        head = {"content-encoding": "utf-8", "content-type": "application/json", "headers": {"task": "read"}}
        self.send(_base64(json.dumps({**head, "body": body, "properties": {"body_encoding": "base64"}})))

    def send_by_sns(self, message: str) -> None:
        sns = self.clients("sns")
        topic = sns.create_topic(Name="scans")["TopicArn"]
        queue = f"arn:aws:sqs:{_REGION}:{ACCOUNT}:scans"
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
        sns.publish(TopicArn=topic, Message=message)
        self.sent += 1

    def is_empty(self) -> bool:
        counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.clients("sqs").get_queue_attributes(QueueUrl=self.url, AttributeNames=counts)
        return {*found["Attributes"].values()} == {"0"}

    def publish_metrics(self, deleted: int) -> None:
        """Publish what SQS does of the last whole minute; moto does not."""
        at = time.time() // 60 * 60 - 60
        values = {"NumberOfMessagesSent": self.sent, "NumberOfMessagesDeleted": deleted}
        values |= {"NumberOfMessagesReceived": deleted + 1, "NumberOfEmptyReceives": 0}
        values |= {"ApproximateAgeOfOldestMessage": 60}
        data: list[Any] = [
            {"MetricName": name, "Value": value, "Timestamp": at, "Dimensions": [_QUEUE]}
            for name, value in values.items()
        ]
        self.clients("cloudwatch").put_metric_data(Namespace="AWS/SQS", MetricData=data)

    def dead_letters(self) -> dict[str, str]:
        """Return the scans of the dead letters, with the reasons that workers have added."""
        found = self.clients("sqs").receive_message(
            QueueUrl=self.dead, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=0
        )
        return {
            json.loads(one["Body"])["scan"]: one.get("MessageAttributes", {})
            .get("spot-reason", {})
            .get("StringValue", "")
            for one in found.get("Messages", ())
        }


_QUEUE: Final = {"Name": "QueueName", "Value": "scans"}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _image(place: Path, endpoint: str) -> str:
    """Make an image of this interpreter, spot-work and the program; return its name."""
    packages = [Path(importlib.import_module(one).__file__ or "").parent for one in _LIBRARIES]
    code = [(path, path.name) for path in (*packages, ROOT / "packages/spot-work/src/spot_work")]
    code.append((Path(importlib.import_module("six").__file__ or ""), "six.py"))
    script = f"#!{real.INTERPRETER}\nfrom spot_work.__main__ import main\nraise SystemExit(main())\n"
    for name, text in (("worker.py", PROGRAM), ("spot-work", script)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
        code.append((place / name, name))
    variables = {"PATH": "/app:/bin", "PYTHONPATH": "/app", "AWS_ENDPOINT_URL": endpoint, **_KEYS}
    changes = [word for name, value in variables.items() for word in ("--change", f"ENV {name}={value}")]
    packed = real.python_image(code)
    subprocess.run(["docker", "import", *changes, "-", "ocr"], input=packed, check=True, capture_output=True)
    [image] = json.loads(subprocess.check_output(["docker", "image", "inspect", "ocr"]))
    return str(image["RepoDigests"][0])


@contextlib.contextmanager
def _instance(place: Path, local: LocalCloud, endpoint: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the agent of an instance of the stack, from its user data, until the body ends."""
    view = local.group("ocr")
    kind, zone = view.instance_types[0], view.zones[0]
    instance = local.launch("ocr", GroupRole.PRIMARY, kind, zone, PurchaseOption.SPOT)
    metadata = MetadataServer()
    metadata.identify(instance, zone, kind)
    metadata.documents[LIFECYCLE_STATE] = "InService"
    files = {one["path"]: one["content"] for one in yaml.safe_load(local.boot_data("ocr"))["write_files"]}
    (place / "agent.json").write_text(files["/etc/gpu-spot/agent.json"])
    for name in ("state", "run", "nvml"):
        (place / name).mkdir()
    nvml = ["-o", str(place / "nvml/libnvidia-ml.so.1"), str(ROOT / "tests/boot/stand_ins/nvml.c")]
    subprocess.run(["gcc", "-shared", "-fPIC", *nvml], check=True)
    script = _AGENT.format(place=place, python=sys.executable, metadata=metadata.url)
    paths = {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": f"{place}/nvml"}
    environment = {**os.environ, **_KEYS, "AWS_ENDPOINT_URL": endpoint, **paths}
    with (place / "said").open("wb") as said:
        agent = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", script], env=environment, stdout=said, stderr=said
        )
    try:
        yield agent
    finally:
        agent.terminate()
        agent.wait(60)
        metadata.close()


def queue_play() -> dict[str, Any]:
    """Workers behind an existing queue: docs/guides.md's stack file, with an image that exists."""
    real.needed("gcc", "unshare")
    seen: dict[str, Any] = {}
    with real.folder() as place, real.podman(place), sandbox(_REGION) as clients, serve() as endpoint:
        (place / "stack.yaml").write_text(FILES[1])
        image = {"services[0].image": _image(place, endpoint)}
        config = stackfile.load(ROOT, "guide", image, file=place / "stack.yaml")
        queue = ExistingQueue(clients)
        local = LocalCloud(clients, deployed(clients, config), RealTime())
        scratch = place / "state/scratch"

        def look() -> int:
            for _ in range(2):  # the queue's row is read at the next look
                local.tick_schedule()
                seen.setdefault("errors", []).extend(run.error for run in local.run_functions() if run.error)
            name = names.group_parameter("guide", "ocr", names.PARAMETER_TARGET)
            return int(clients("ssm").get_parameter(Name=name)["Parameter"]["Value"])

        with _instance(place, local, endpoint) as agent:
            wait_until(lambda: [one.state for one in local.workers("ocr")] == ["ready"])
            queue.send(queue.scan("boto3"))
            queue.send_by_sns(queue.scan("sns"))
            queue.send_by_celery(queue.scan("celery"))
            queue.send('{"scan": "missing"}')
            wait_until(lambda: queue.is_empty() and queue.dead_letters())
            seen["read"] = sorted((scratch / "read").read_text().splitlines())
            (scratch / "slow").touch()
            for number in range(WAITING):
                queue.send(queue.scan(str(number)))
            queue.publish_metrics(deleted=4)
            seen["targets"] = look(), look()
            seen["desired"] = local.desired("ocr")
            (scratch / "slow").unlink()
            queue.send('{"scan": "crash"}')
            wait_until(lambda: queue.is_empty() and len(queue.dead_letters()) == 2)
            seen["all"] = (scratch / "read").read_text().splitlines()
            seen["dead"] = queue.dead_letters()
            agent.terminate()
            seen["code"] = agent.wait(60)
            seen["left"] = local.workers("ocr"), queue.is_empty()
            seen["said"] = (place / "said").read_text()
    return seen


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(queue_play).result()  # what it waits for has limits
    except real.LackingError as error:
        pytest.skip(str(error))


def test_messages_of_other_senders_are_answered_and_failures_are_dead_letters(played: dict[str, Any]) -> None:
    assert played["read"] == ["text of boto3", "text of celery", "text of sns"]
    assert sorted(played["all"]) == sorted([*played["read"], *(f"text of {one}" for one in range(WAITING))])
    assert played["dead"].keys() == {"missing", "crash"}
    assert played["dead"]["missing"].startswith("NoSuchKey: ")
    assert played["said"].count('"code": 3,') == 3  # maxReceiveCount, of the queue's owner


def test_the_group_has_what_the_queue_needs_and_the_instance_ends_without_a_rest(
    played: dict[str, Any],
) -> None:
    assert played["errors"] == []
    assert 2 < played["targets"][-1] <= 8
    assert sum(played["desired"]) >= played["targets"][-1]
    assert played["code"] == 0
    assert played["left"] == ([], True)


SHARED: Final = """
config:
  aws:region: us-west-2
  gpu-spot:network: {cidr: 10.20.0.0/16, zones: [us-west-2a, us-west-2b]}
  gpu-spot:sharedHosts:
    - name: lab
      allowedSources: [10.30.0.0/16]
      capacity: {kind: mixed-asg, target: 1, instanceTypes: [p4d.24xlarge]}
      tenants:
        - &tenant
          name: vision
          uid: 2001
          cpus: 32
          memoryGiB: 400
          gpus: 4
          dataGiB: 500
          hostPort: 8001
          containerPort: 8888
          image: IMAGE
          command: [sh, -c, "echo $GPU_SPOT_TENANT > /data/name; exec busybox httpd -f -p 8888 -h /data"]
        - <<: *tenant
          name: speech
          uid: 2002
          cpus: 16
          cpuMode: capped
          memoryGiB: 200
          gpus: [1, 6]
          hostPort: 8002
        - {<<: *tenant, name: notes, uid: 2003, cpus: 8, memoryGiB: 64, gpus: 1, hostPort: 8003}
"""


def _tenants(place: Path, change: Callable[[dict[str, Any]], None]) -> tuple[Tenant, ...]:
    """Declare the stack with a change of its three tenants; return the list that the host reads."""
    raw = yaml.safe_load(SHARED.replace("IMAGE", f"registry.example.org/notebook@sha256:{'0' * 64}"))
    change({one["name"]: one for one in raw["config"]["gpu-spot:sharedHosts"][0]["tenants"]})
    path = place / f"Pulumi.{len([*place.glob('Pulumi.*')])}.yaml"  # what was declared of a file is kept
    path.write_text(yaml.safe_dump(raw))
    stored = run("known", path).the("BucketObjectv2", "lab-tenants")
    return tuple(replace(one, image=real.IMAGE) for one in codec.decode(stored["content"]))


def test_three_tenants_of_a_p4d_have_what_the_file_says_and_notice_nothing_of_each_other() -> None:
    try:
        with real.folder() as place, shared_host(place, _tenants(place, lambda _: None), gpus=8) as host:
            _play_tenants(place, host)
    except real.LackingError as error:
        pytest.skip(str(error))


def _play_tenants(place: Path, host: SharedHost) -> None:
    ports = {"vision": 8001, "speech": 8002, "notes": 8003}

    def gpus() -> dict[str, set[int]]:
        """Return the GPUs of each tenant's container: its devices, those that its variable names."""
        found = {}
        for name in ports:
            devices = host.within(
                name, "for one in /dev/nvidia*; do echo ${one#/dev/nvidia}; done"
            ).stdout.split()
            visible = host.within(name, "echo $NVIDIA_VISIBLE_DEVICES").stdout.strip().split(",")
            assert visible == [f"GPU-{number}" for number in sorted(map(int, devices))]
            found[name] = {*map(int, devices)}
        return found

    def answers() -> dict[str, str]:
        fetch = ["busybox", "wget", "-q", "-O", "-"]
        urls = {name: f"http://{ADDRESS}:{port}/name" for name, port in ports.items()}
        return {name: host.host.run([*host.inside, *fetch, url], 60).strip() for name, url in urls.items()}

    until(lambda: all(host.answers(ADDRESS, port) for port in ports.values()), "all answer")
    assert answers() == {name: name for name in ports}
    assert gpus() == {"vision": {0, 2, 3, 4}, "speech": {1, 6}, "notes": {5}}
    limits = {name: one["HostConfig"] for name, one in host.inspected().items()}
    assert {name: one["Memory"] >> 30 for name, one in limits.items()} == {
        **{"vision": 400, "speech": 200, "notes": 64}
    }
    assert limits["vision"]["CpuShares"] == 4 * limits["notes"]["CpuShares"]
    assert {name: one["CpuQuota"] for name, one in limits.items()} == {
        **{"vision": -1, "speech": 1_600_000, "notes": -1}
    }
    assert host.users() == {"vision": 2001, "speech": 2002, "notes": 2003}

    before = host.pids()
    host.docker("kill", name_of("speech"))
    until(lambda: host.pids().get("speech", before["speech"]) != before["speech"], "speech is back")
    host.tenants = _tenants(place, lambda tenants: tenants["notes"].update(gpus=2, memoryGiB=32))
    until(lambda: host.pids().get("notes", before["notes"]) != before["notes"], "notes is changed")
    until(lambda: all(host.answers(ADDRESS, port) for port in ports.values()), "all answer again")
    assert answers() == {name: name for name in ports}
    assert host.inspected()["notes"]["HostConfig"]["Memory"] == 32 * 2**30
    assert host.pids()["vision"] == before["vision"]
    assert gpus() == {"vision": {0, 2, 3, 4}, "speech": {1, 6}, "notes": {5, 7}}
