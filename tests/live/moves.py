"""A training job that loses its instance: the moves of its volume, as JSON values."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from moto.ec2.models import ec2_backends

from contracts import names
from contracts.group import config as group_config
from gpu_spot.jobs import report
from gpu_spot.jobs.reader import JobReader
from lambdas.aws.memory import MemoryStore
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.engine import Replay
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import TICK_SECONDS, Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.ec2 import spot_prices
from rehearsal.fleets import TrainingFleet
from rehearsal.machines import boot, shared
from rehearsal.machines.group import Nodes, playing
from rehearsal.machines.process import TrainingProfile
from rehearsal.results.moves import to_json
from tests.e2e.world import START, World, living, load

SEED = 5
"""Of the notices: with half of the losses announced chance chooses the first and the third."""

STEPS = 330
MINUTES = 280
SECOND = "f" * 40
"""Another revision of the job."""
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")

# The minutes in which a zone has no spot.
Closed = Mapping[str, range]
ONE_BY_ONE: Closed = dict(zip(ZONES, (range(60, MINUTES), range(120, MINUTES), range(180, 190)), strict=True))
FOR_AN_HOUR: Closed = dict(zip(ZONES, (range(60, MINUTES), range(30, 120), range(30, MINUTES)), strict=True))


PRICES = (0.2, 0.3, 0.4)
"""Dollars an hour of Spot in each zone."""
SPOT_ALONE: Mapping[str, Any] = {"training[0].capacity.fallback.enabled": False}


@contextlib.contextmanager
def research(
    changed: Mapping[str, Any], profile: TrainingProfile | None = None
) -> Iterator[tuple[World, Nodes, boot.BootData]]:
    """The research stack with these settings changed, its nodes, and the boot data of its job."""
    with living(load("research", changed)) as world, playing(world.clients, world.clock, profile) as nodes:
        data = boot.parse(world.cloud.boot_data("resnet"))
        assert data.agent.volume is not None
        shared.stand_in(world.clients, data.agent.volume.dataset)
        yield world, nodes, data


def played() -> dict[str, Any]:
    """Lose it three times, on spot alone, until it is done and gone.

    It starts in zone a, goes to b and to c, and waits for c. The first and the third loss are announced, the
    second is not. Spot has another price in each zone.
    """
    so_far: list[dict[str, Any]] = []
    with research(SPOT_ALONE, TrainingProfile(steps=STEPS)) as (world, nodes, data):
        replay = market(world, nodes, Rules(seed=SEED, notice=0.5, warm_up_ticks=0), ONE_BY_ONE)
        quoted = {("g6.xlarge", zone): price for zone, price in zip(ZONES, PRICES, strict=True)}
        spot_prices.quote(ec2_backends[ACCOUNT][world.clients.region], quoted)

        def on_tick(tick: int, _: Span) -> None:
            if tick >= MINUTES // 2 and not so_far:
                so_far.append(account_of(world))

        ledger = replay.run(on_tick=on_tick)
        nodes.advance(START + MINUTES * 60)
        return {
            "account": account_of(world),
            "so_far": so_far[0],
            "spot_hours": sum(one.spot * one.ticks for one in ledger.spans) * TICK_SECONDS / 3600,
            "on_demand_hours": sum(one.on_demand * one.ticks for one in ledger.spans) * TICK_SECONDS / 3600,
            "moves": [to_json(move) for move in nodes.migrations().moves],
            "underway": nodes.migrations().underway,
            "spans": [asdict(span) for span in ledger.spans],
            "played": replay.played,
            **left_behind(world, nodes, data),
            "tampered": tampered(world, data),
        }


def account_of(world: World) -> dict[str, Any]:
    """Return the job's account, read as on AWS."""
    reader = JobReader(world.clients, world.deployment.stack, world.clients.region, lambda: world.clock.now)
    account: dict[str, Any] = report.to_json(reader.report("resnet"))["account"]
    return account


def bridged() -> dict[str, Any]:
    """Lose its zone when no other has spot, and give it one again an hour later: in between is on-demand.

    That is bought once spot is refused, not at the notice.
    """
    with research({"training[0].capacity.fallback.policyParameters.shortageCost": 2.0}) as (world, nodes, _):
        ledger = market(world, nodes, Rules(notice=1.0, warm_up_ticks=0), FOR_AN_HOUR).run()
        return {
            "moves": [to_json(move) for move in nodes.migrations().moves],
            "spans": [asdict(span) for span in ledger.spans],
        }


def revised() -> dict[str, Any]:
    """Ask for another revision while the first one trains: the first ends by itself, then the second runs.

    What `up` does then is done here by hand: a new template, the group, and at last ``config``.
    """
    with research(SPOT_ALONE, TrainingProfile(steps=STEPS // 4)) as (world, nodes, data):
        replay = market(world, nodes, Rules(warm_up_ticks=0), {zone: range(0) for zone in ZONES})
        asked: list[set[str]] = []

        def ask_once(tick: int, span: Span) -> None:
            if span.ready and not asked:
                asked.append(world.cloud.alive("resnet"))
                ask_for(world, SECOND)

        ledger = replay.run(on_tick=ask_once)
        return {
            "asked": sorted(asked[0]),
            "journal": [
                (e.kind, e.instance) for e in nodes.journal.entries if e.kind in ("running", "stopped")
            ],
            "spans": [asdict(span) for span in ledger.spans],
            **left_behind(world, nodes, data),
        }


def ask_for(world: World, revision: str) -> None:
    """Change the job's revision as `up` does: template, group, ``config``."""
    ec2, autoscaling, ssm = (world.clients(name) for name in ("ec2", "autoscaling", "ssm"))
    root = names.parameter_root(world.deployment.stack)
    config = group_config.parse(ssm.get_parameter(Name=f"{root}/resnet/config")["Parameter"]["Value"])
    [group] = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[config.primary])[
        "AutoScalingGroups"
    ]
    policy = group["MixedInstancesPolicy"]
    used = policy["LaunchTemplate"]["LaunchTemplateSpecification"]
    used.pop("LaunchTemplateName", None)  # a request takes one of the two
    [version] = ec2.describe_launch_template_versions(
        LaunchTemplateId=used["LaunchTemplateId"], Versions=[used["Version"]]
    )["LaunchTemplateVersions"]
    template = version["LaunchTemplateData"]
    text = base64.b64decode(template["UserData"]).decode().replace(config.run, revision)
    template["UserData"] = base64.b64encode(text.encode()).decode()
    made = ec2.create_launch_template_version(
        LaunchTemplateId=used["LaunchTemplateId"], LaunchTemplateData=template
    )["LaunchTemplateVersion"]
    used["Version"] = str(made["VersionNumber"])
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=config.primary, MixedInstancesPolicy=policy)
    config_text = group_config.dumps(replace(config, run=revision))
    ssm.put_parameter(Name=f"{root}/resnet/config", Value=config_text, Overwrite=True)


def market(world: World, nodes: Nodes, rules: Rules, closed: Closed) -> Replay:
    traces = [
        PoolTrace(zone, 60.0, tuple(int(minute not in closed[zone]) for minute in range(MINUTES)))
        for zone in ZONES
    ]
    dynamodb, tables = world.clients("dynamodb"), world.deployment.outputs
    fleet = TrainingFleet(
        world.cloud,
        "resnet",
        MemoryStore(dynamodb, tables["memoryTable"]),
        nodes,
        boots=180.0,
        warm_boots=60.0,
    )
    shape = GroupShape(tuple(Pool("g6.xlarge", zone) for zone in ZONES))
    return Replay(SpotMarket(traces, rules, 1), rules, fleet, shape, 1, start=START)


def left_behind(world: World, nodes: Nodes, data: boot.BootData) -> dict[str, Any]:
    """What is in AWS and on the volume in the end."""
    training, volume = data.agent.training, data.agent.volume
    assert training is not None
    assert volume is not None
    ours = [{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
    ec2, ssm = world.clients("ec2"), world.clients("ssm")
    item = world.clients("dynamodb").get_item(TableName=training.job_table, Key={"job": {"S": training.job}})[
        "Item"
    ]
    [home] = ec2.describe_volumes(Filters=ours)["Volumes"]
    folder = nodes.disks.folder(home["VolumeId"])
    bucket, prefix = volume.dataset.removeprefix("s3://").split("/", 1)
    s3 = world.clients("s3")
    objects = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
    body = {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in objects}
    copied = {key: (folder / "datasets" / key.removeprefix(prefix)).read_bytes() for key in objects}
    newest = sorted((folder / "checkpoints" / training.job).glob("step-*.json"))[-1]
    return {
        "home": (home["State"], home["VolumeId"], home["AvailabilityZone"]),
        "item": {key: next(iter(value.values())) for key, value in item.items()},
        "snapshots": ec2.describe_snapshots(Filters=ours)["Snapshots"],
        "instances": sorted(world.cloud.alive("resnet")),
        "desired": world.cloud.desired("resnet"),
        "finished": ssm.get_parameter(Name=training.finished_parameter)["Parameter"]["Value"],
        "revision": training.revision,
        "dataset": (len(body), body == copied),
        "checkpoint": newest.read_text(),
        "uninterrupted": uninterrupted([body[key] for key in sorted(body)], folder),
    }


def uninterrupted(objects: list[bytes], folder: Any) -> str:
    """Return the state after all steps of an uninterrupted training."""
    marker = (folder / "datasets" / ".gpu-spot-dataset.json").read_bytes()
    state = hashlib.sha256(marker + b"".join(objects)).hexdigest()
    for _ in range(STEPS + 1):
        state = hashlib.sha256(state.encode()).hexdigest()
    return state


def tampered(world: World, data: boot.BootData) -> str:
    """What a node says whose archive is not the one that its boot data name."""
    world.clients("s3").put_object(Bucket=data.bucket, Key=data.key, Body=b"something else")
    launched = world.cloud.launch("resnet", GroupRole.PRIMARY, "g6.xlarge", ZONES[0], PurchaseOption.SPOT)
    try:
        boot.boot(world.clients, launched)
    except LocalCloudError as error:
        return str(error)
    return ""
