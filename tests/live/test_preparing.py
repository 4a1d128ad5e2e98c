"""A dataset is prepared once on a CPU instance, before any GPU instance, and not copied again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, Final

import pytest

from contracts import names
from lambdas.aws.memory import MemoryStore
from lambdas.core.model import Pool
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import TICK_SECONDS, Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.fleets import CloudFleet, TrainingFleet
from rehearsal.machines import shared
from rehearsal.machines.group import Nodes, playing
from rehearsal.machines.journal import Entry
from rehearsal.machines.node import SimulatedNode
from rehearsal.machines.process import TrainingProfile
from tests.apart import apart
from tests.e2e.world import World, living, load

ZONE = "us-west-2a"
PREPARE = {
    "name": "imagenet",
    "version": "1",
    "command": ["python3", "prepare.py"],
    "instanceType": "m7i.2xlarge",
    "sizeGiB": 50,
}


PREPARE_SECONDS: Final = 600.0
"""Assumed duration; output is written at the end."""
_FILES: Final = 24
_BYTES: Final = 16_384


class PreparingProcess:
    """A fake ``subprocess.Popen`` in simulated time that derives 24 files from those in the folder."""

    first_step = step = 0
    loads = 0.0

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float], pid: int) -> None:
        self.pid = pid
        self._folder = Path(environment["GPU_SPOT_DATASETS"])
        self._clock = clock
        self._end = clock() + PREPARE_SECONDS
        self._code: int | None = None

    @property
    def next_checkpoint(self) -> float:
        """Infinity: it makes no checkpoints."""
        return math.inf

    @property
    def quiet_until(self) -> float:
        """Time of its end."""
        return self._end if self._code is None else 0.0

    @property
    def has_ended(self) -> bool:
        return self._code is not None

    def poll(self) -> int | None:
        """Return the exit code once it has ended."""
        if self._code is None and self._clock() >= self._end:
            whole = hashlib.sha256()
            for path in sorted(path for path in self._folder.rglob("*") if path.is_file()):
                whole.update(path.read_bytes())
            for number in range(_FILES):
                body = hashlib.shake_256(whole.digest() + bytes([number])).digest(_BYTES)
                (self._folder / f"made-{number:03d}.bin").write_bytes(body)
            self._code = 0
        return self._code

    def signal(self, number: int) -> None:
        """SIGTERM and SIGKILL end it without output; the next start begins again."""
        if number in (SIGTERM, SIGKILL) and self._code is None:
            self._code = -number


class Node(SimulatedNode):
    """An instance that also prepares datasets."""

    def _started(self, argv: list[str], environment: dict[str, str], cwd: Path) -> Any:
        if argv == PREPARE["command"]:
            return PreparingProcess(environment, self._clock.wall, next(self._pids))
        return super()._started(argv, environment, cwd)


_HOURS: Final = 6


class _PreparedError(Exception):
    """The dataset is prepared."""


def prepare(cloud: LocalCloud, fleet: CloudFleet) -> None:
    """Let a group prepare its dataset on Spot without interruptions.

    Raises ``LocalCloudError`` if it does not finish in time.
    """
    view, ssm = cloud.group(fleet.group), cloud.clients("ssm")
    parameter = names.group_parameter(cloud.deployment.stack, view.name, names.PARAMETER_PREPARED)
    zone = min(view.zones)
    trace = PoolTrace(zone, float(TICK_SECONDS), (1,) * round(_HOURS * 3600 / TICK_SECONDS))
    rules = Rules(warm_up_ticks=0)
    shape = GroupShape((Pool(view.instance_types[0], zone),))
    before = ssm.get_parameter(Name=parameter)["Parameter"]["Value"]

    def watch(tick: int, span: Span) -> None:
        is_prepared = ssm.get_parameter(Name=parameter)["Parameter"]["Value"] != before
        if is_prepared and not cloud.alive(view.name):
            raise _PreparedError

    try:
        Replay(SpotMarket([trace], rules, 1), rules, fleet, shape, 1, start=cloud.clock.now).run(
            on_tick=watch
        )
    except _PreparedError:
        return
    raise LocalCloudError(f"group {view.name!r} did not prepare its dataset within {_HOURS} hours")


def played() -> dict[str, Any]:
    """Prepare, empty the bucket, train two jobs of one dataset to their ends."""
    config = load("research", {"training[0].prepare": PREPARE})
    [first] = config.values["gpu-spot:training"]
    config = load(
        "research",
        {"training": [{**first, "prepare": PREPARE}, {**first, "name": "vit", "prepare": PREPARE}]},
    )
    with (
        living(config) as world,
        playing(world.clients, world.clock, TrainingProfile(steps=20), Node) as nodes,
    ):
        shared.stand_in(world.clients, first["dataset"])
        asked: set[tuple[str, tuple[int, int]]] = set()
        said_in = "/gpu-spot/research/groups/imagenet-data/prepared"

        def look(call: object) -> None:
            said = world.clients("ssm").get_parameter(Name=said_in)["Parameter"]["Value"]
            asked.add((said, world.cloud.desired("resnet")))

        watched = fleet(world, nodes, "imagenet-data")
        world.cloud.listen(look)
        prepare(world.cloud, watched)
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
        world.cloud, group, MemoryStore(dynamodb, tables["memoryTable"]), nodes, boots=180.0, warm_boots=60.0
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


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(played)


def test_no_gpu_is_asked_for_while_the_dataset_is_made(seen: dict[str, Any]) -> None:
    assert [desired for said, desired in seen["asked"] if said == "none"] == [(0, 0)]
    assert ("imagenet@1", (1, 0)) in seen["asked"]  # and at once when it is there


def test_the_job_starts_with_the_prepared_dataset_and_reads_nothing_from_s3(seen: dict[str, Any]) -> None:
    [snapshot, tag] = seen["snapshots"][0]
    assert tag == "imagenet@1"
    assert seen["bucket"] == 24  # all of them were deleted before the first GPU came
    blank, *copies = seen["made_from"]
    assert blank[0] == ""
    assert {made_from for made_from, _ in copies} == {snapshot}
    assert {seen["items"][job]["state"] for job in ("resnet", "vit")} == {"done"}


def test_the_second_job_has_the_same_without_another_preparation(seen: dict[str, Any]) -> None:
    assert len(seen["snapshots"]) == len(seen["prepared_on"]) == 1
    first, second = (seen["contents"][volume] for made_from, volume in seen["made_from"] if made_from)
    assert first == second


def test_temporary_resources_are_deleted_and_the_result_is_recorded(seen: dict[str, Any]) -> None:
    assert seen["volumes"] == []
    prepared = seen["items"]["imagenet-data"]
    assert prepared["imagenet@1"] == seen["snapshots"][0][0]
    assert prepared["state"] == "done"
    assert not {"volume", "holder"} & prepared.keys()
