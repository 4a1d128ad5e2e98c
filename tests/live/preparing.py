"""A dataset is prepared, then two jobs train on it, as JSON values."""

from __future__ import annotations

from typing import Any

from lambdas.aws.memory import MemoryStore
from lambdas.core.model import Pool
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from rehearsal import preparing
from rehearsal.fleets import TrainingFleet
from rehearsal.machines import dataset
from rehearsal.machines.group import Nodes, playing
from rehearsal.machines.journal import Entry
from rehearsal.machines.process import TrainingProfile
from tests.e2e.world import World, living, load

ZONE = "us-west-2a"
PREPARE = {
    "name": "imagenet",
    "version": "1",
    "command": ["python3", "prepare.py"],
    "instanceType": "m7i.2xlarge",
    "sizeGiB": 50,
}


def played() -> dict[str, Any]:
    """Prepare, empty the bucket, train two jobs of one dataset to their ends."""
    config = load("research", {"training[0].prepare": PREPARE})
    [first] = config.values["gpu-spot:training"]
    config = load(
        "research",
        {"training": [{**first, "prepare": PREPARE}, {**first, "name": "vit", "prepare": PREPARE}]},
    )
    with living(config) as world, playing(world.clients, world.clock, TrainingProfile(steps=20)) as nodes:
        dataset.stand_in(world.clients, first["dataset"])
        asked: set[tuple[str, tuple[int, int]]] = set()
        said_in = "/gpu-spot/research/groups/imagenet-data/prepared"

        def look(call: object) -> None:
            said = world.clients("ssm").get_parameter(Name=said_in)["Parameter"]["Value"]
            asked.add((said, world.cloud.desired("resnet")))

        watched = fleet(world, nodes, "imagenet-data")
        world.cloud.listen(look)
        preparing.play(world.cloud, nodes, watched)
        bucket = empty(world, first["dataset"])
        found: dict[str, Any] = {"asked": sorted(asked), "bucket": bucket, "volumes": volumes(world)}
        found["prepared_on"] = sorted({e.instance for e in nodes.journal.entries if e.kind == "running"})
        for name in ("resnet", "vit"):
            train(world, nodes, name)
        entries = nodes.journal.entries
        return found | {
            "snapshots": snapshots(world),
            "made_from": [(e.snapshot, e.volume) for e in entries if e.kind == "created"],
            "items": {name: item(world, name) for name in ("imagenet-data", "resnet", "vit")},
            "contents": first_contents(entries),
        }


def first_contents(entries: list[Entry]) -> dict[str, str]:
    """What each volume held when it was first mounted."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.kind == "mounted" and entry.contents:
            found.setdefault(entry.volume, entry.contents.digest)
    return found


def fleet(world: World, nodes: Nodes, group: str) -> TrainingFleet:
    dynamodb, tables = world.clients("dynamodb"), world.deployment.outputs
    return TrainingFleet(
        world.cloud,
        group,
        MemoryStore(dynamodb, tables["memoryTable"]),
        nodes=nodes,
        registry=world.cloud.registry,
        boots=180.0,
        warm_boots=60.0,
    )


def train(world: World, nodes: Nodes, group: str) -> None:
    rules = Rules(warm_up_ticks=0)
    market = SpotMarket([PoolTrace(ZONE, 60.0, (1,) * 60)], rules, 1)
    shape = GroupShape((Pool("g6.xlarge", ZONE),))
    Replay(market, rules, fleet(world, nodes, group), shape, 1, start=world.clock.now).run()


def empty(world: World, uri: str) -> int:
    s3, (bucket, _, prefix) = world.clients("s3"), uri.removeprefix("s3://").partition("/")
    keys = [content["Key"] for content in s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
    for key in keys:
        s3.delete_object(Bucket=bucket, Key=key)
    return len(keys)


def volumes(world: World) -> list[str]:
    ours = [{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
    return [volume["VolumeId"] for volume in world.clients("ec2").describe_volumes(Filters=ours)["Volumes"]]


def snapshots(world: World) -> list[tuple[str, str]]:
    ours = [{"Name": "tag-key", "Values": ["gpu-spot:dataset"]}]
    found = world.clients("ec2").describe_snapshots(Filters=ours)["Snapshots"]
    return [
        (one["SnapshotId"], next(t["Value"] for t in one["Tags"] if t["Key"] == "gpu-spot:dataset"))
        for one in found
    ]


def item(world: World, job: str) -> dict[str, str]:
    table = world.deployment.outputs["jobTable"]
    found = world.clients("dynamodb").get_item(TableName=table, Key={"job": {"S": job}})["Item"]
    return {name: next(iter(value.values())) for name, value in found.items()}
