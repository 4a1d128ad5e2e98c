"""A deployed stack with jobs in moto, as `gpu-spot jobs` reads it; the tests act as its node agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import boto3
import pytest

from contracts import names
from contracts.agent.names import TAG_JOB
from contracts.group import config as group_config
from contracts.group.config import GroupConfig, PolicyChoice
from contracts.jobs import attempt as attempts
from contracts.jobs.attempt import JobAttempt
from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from gpu_spot.jobs.reader import JobReader
from pulumi_on_moto.emulator import ACCOUNT
from tests import models
from tests.jobs.snapshots import NOW, RUN
from tests.node.configs import FakeClock
from userdata.agent.aws.jobs import Jobs

REGION: Final = "us-west-2"
IMAGE: Final = "ami-12c6146b"
SUFFIX: Final = "0a1b2c3"
CONFIG: Final = GroupConfig(
    kind="mixed-asg",
    primary="p",
    fallback="f",
    base=0,
    spot_percentage=100,
    maximum=2,
    slots={},
    drain_seconds=20,
    break_before_make=True,
    policy=PolicyChoice("expected-cost"),
    run=RUN,
)


class Stack:
    """The stack ``dev`` in an empty region; ``calls`` counts AWS API calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.clients: dict[str, Any] = {}
        for short, keys in {"jobs": ["job"], "registry": ["group", "worker"], "memory": ["group"]}.items():
            models.create_table(self("dynamodb"), f"gpu-spot-dev-{short}-{SUFFIX}", *keys)
        self.jobs, self.registry = (f"gpu-spot-dev-{short}-{SUFFIX}" for short in ("jobs", "registry"))

    def __call__(self, service: str) -> Any:
        if service not in self.clients:
            self.clients[service] = boto3.client(service, region_name=REGION)  # type: ignore[call-overload]
            self.clients[service].meta.events.register("before-call", self._count)
        return self.clients[service]

    def _count(self, model: Any, **_: Any) -> None:
        self.calls[model.name] += 1

    @property
    def reader(self) -> JobReader:
        return JobReader(self, "dev", REGION, lambda: NOW)

    def parameter(self, group: str, leaf: str, value: str) -> None:
        name = names.group_parameter("dev", group, leaf)
        self("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)

    def finished(self, group: str) -> str:
        name = names.group_parameter("dev", group, names.PARAMETER_FINISHED)
        return str(self("ssm").get_parameter(Name=name)["Parameter"]["Value"])

    def group(self, name: str, **more: Any) -> None:
        """Create a job's group, or a service's with ``run=""``."""
        self.parameter(name, "config", group_config.dumps(replace(CONFIG, **more)))
        self.parameter(name, "target", "1")
        self.parameter(name, "control", '{"mode": "automatic"}')
        self.parameter(name, "finished", "none")

    def agent(self, job: str = "resnet", revision: str = RUN) -> Jobs:
        """Return the job table as the node agent writes it."""
        parameter = names.group_parameter("dev", job, names.PARAMETER_FINISHED)
        return Jobs(self("dynamodb"), self("ssm"), self.jobs, job, revision, parameter, FakeClock())

    def instance(self, job: str, zone: str = "us-west-2a") -> str:
        values = {names.TAG_STACK: "dev", TAG_JOB: job}
        tags = [{"Key": key, "Value": value} for key, value in values.items()]
        response = self("ec2").run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            InstanceType="g5.xlarge",
            Placement={"AvailabilityZone": zone},
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return str(response["Instances"][0]["InstanceId"])

    def record_heartbeat(self, job: str, instance: str) -> None:
        arns = registry_item.instance_arns("aws", REGION, ACCOUNT)
        partition = registry_item.partition(job, arns + instance)
        item = registry_item.dump(Worker(partition, instance, 0, NOW - 600, NOW - 5, "ready"))
        self("dynamodb").put_item(TableName=self.registry, Item=item)

    def set_lease(self, job: str, instance: str, token: int) -> None:
        self("dynamodb").update_item(
            TableName=self.jobs,
            Key={"job": {"S": job}},
            UpdateExpression="SET holder = :me, leaseUntil = :until, #token = :token",
            ExpressionAttributeNames={"#token": "token"},
            ExpressionAttributeValues={
                ":me": {"S": instance},
                ":until": {"N": str(int(NOW + 60))},
                ":token": {"N": str(token)},
            },
        )

    def record_attempt(self, job: str, attempt: JobAttempt) -> None:
        self("dynamodb").put_item(TableName=self.jobs, Item=attempts.dump(job, attempt))

    def start_training(self, job: str = "resnet") -> str:
        """Start training of a job; return its instance."""
        instance = self.instance(job)
        self.agent(job).mark("running")
        self.set_lease(job, instance, 1)
        self.record_heartbeat(job, instance)
        return instance


@contextmanager
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with models.moto():
        yield Stack()
