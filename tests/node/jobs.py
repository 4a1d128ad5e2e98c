"""A training job's instances: the agent's real adapters on moto, the host and the clock ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3

from tests.models import create_table
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.units import UnitHost
from userdata.agent import tasks
from userdata.agent.machine.background import at_once
from userdata.agent.work import notice

REGION = "us-west-2"
IMAGE = "ami-12c6146b"
"""One of moto's own: it takes seconds to show them all."""


TABLES = {"jobs": ("job",), "registry": ("group", "worker")}
"""The tables' keys."""


def make_tables(*tables: str) -> Any:
    """Make the tables named, or both; return DynamoDB's client."""
    client: Any = boto3.client("dynamodb", region_name=REGION)
    for table in tables or TABLES:
        create_table(client, table, *TABLES[table])
    return client


MakeNode = Callable[..., tasks.Node]
"""Launches an instance: the letter of its zone, its directory's name, its host."""


def node(
    ec2: Any, server: MetadataServer, clock: FakeClock, directory: Path, zone: str, host: UnitHost
) -> tasks.Node:
    run = ec2.run_instances(
        ImageId=IMAGE, MinCount=1, MaxCount=1, Placement={"AvailabilityZone": zone}, InstanceType="t3.micro"
    )
    instance = run["Instances"][0]["InstanceId"]
    server.identify(instance, zone)
    made = tasks.Node(configs.load(configs.training(volume={"sizeGib": 1})), directory, server.url)
    made.run_in_background = at_once
    made.clock, made.host, made.gpus, made.root = clock, host, None, directory
    made.fenced = lambda dead_at: contextlib.nullcontext()  # it would end the tests
    return made


def volumes(ec2: Any) -> list[tuple[str, str, str]]:
    found = ec2.describe_volumes(Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}])["Volumes"]
    tags = [{t["Key"]: t["Value"] for t in v["Tags"]} for v in found]
    return [
        (v["AvailabilityZone"], v["State"], t["gpu-spot:state"]) for v, t in zip(found, tags, strict=True)
    ]


def row() -> dict[str, str] | None:
    """What the registry says of the one worker in it."""
    found = boto3.client("dynamodb", region_name=REGION).scan(TableName="registry")["Items"]
    assert len(found) <= 1
    return {k: next(iter(v.values())) for k, v in found[0].items()} if found else None  # type: ignore[misc]


def job() -> dict[str, Any]:
    key = {"job": {"S": "resnet"}}
    return boto3.client("dynamodb", region_name=REGION).get_item(TableName="jobs", Key=key).get("Item", {})  # type: ignore[return-value]


def write_notice(directory: Path, clock: FakeClock) -> float:
    found = notice.from_lifecycle("Terminated", clock.wall(), 120.0)
    notice.write(directory, found)
    return found.deadline
