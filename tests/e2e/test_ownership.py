"""Ownership: the program declares bounds, mix and templates; the controller changes capacity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from market.replay.fleet import LightFleet
from market.replay.ledger import Span
from market.rules import TICK_SECONDS
from pulumi_on_moto import Change, changes, up
from tests.apart import apart
from tests.e2e.world import CAPACITY, START, World, living, load, small

HOURS = 8
SEED = 13
GROUP = "aws:autoscaling/group:Group"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
PARAMETER = "aws:ssm/parameter:Parameter"
Facts = dict[tuple[str, str], Any]


def facts(world: World) -> Facts:
    """Return the AWS state that the controller could change, by (resource, field)."""
    found: Facts = {}
    for group in world.clients("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]:
        found |= {(group["AutoScalingGroupName"], key): group[key] for key in group.keys() - {"Instances"}}
    for fleet in world.clients("ec2").describe_spot_fleet_requests()["SpotFleetRequestConfigs"]:
        config = fleet["SpotFleetRequestConfig"]
        seen = {key: value for key, value in config.items() if "Fulfilled" not in key}
        found |= {(fleet["SpotFleetRequestId"], key): value for key, value in seen.items()}
    for parameter in world.clients("ssm").get_parameters_by_path(Path="/gpu-spot", Recursive=True)[
        "Parameters"
    ]:
        found[parameter["Name"], "Value"] = parameter["Value"]
    for template in world.clients("ec2").describe_launch_templates()["LaunchTemplates"]:
        found[template["LaunchTemplateId"], "LatestVersionNumber"] = template["LatestVersionNumber"]
    return found


def after_a_shortage(stack: str) -> tuple[set[str], tuple[Change, ...], bool]:
    """Return the fields that the controller changed, the changes of a second run, and if it had no effect."""
    config = load(stack, small())
    with living(config, SEED) as world:
        before = facts(world)
        # Stopped in the middle: at the end of a shortage everything could be as before.
        with pytest.raises(ShortageError):
            world.replay(world.fleet(), HOURS).run(HOURS * 60, Shortage(world).stop)
        moved = facts(world)
        differing = {key[1] for key in before.keys() | moved.keys() if before.get(key) != moved.get(key)}
        found = changes(world.deployment, config)
        return differing, found, facts(world) == moved


class ShortageError(Exception):
    """Spot is short and On-Demand replaces it."""


@dataclass
class Shortage:
    """Acts once in a replay, when On-Demand replaces Spot."""

    world: World
    overrides: dict[str, Any] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    occurred_at: float | None = None
    survivors: tuple[set[str], set[str]] = (set(), set())

    def occurs(self, tick: int, span: Span) -> bool:
        return self.occurred_at is None and tick > 60 and span.on_demand > 0 and span.refused

    def stop(self, tick: int, span: Span) -> None:
        if self.occurs(tick, span):
            raise ShortageError

    def up(self, tick: int, span: Span) -> None:
        if self.occurs(tick, span):
            self.occurred_at = START + tick * TICK_SECONDS
            before = self.world.cloud.alive(self.world.view.name)
            config = load(self.world.deployment.stack, self.overrides)
            _, self.changes = up(self.world.deployment, config)
            self.survivors = (before, self.world.cloud.alive(self.world.view.name))


def through_a_shortage(stack: str, change: dict[str, Any]) -> dict[str, Any]:
    """Change the stack during a Spot shortage; return the changes and the results of both replays."""
    overrides = small()
    with living(load(stack, overrides), SEED) as world:
        light = LightFleet(world.group.group, world.group.policy)
        simulated = world.replay(light, HOURS).run(HOURS * 60)
        shortage = Shortage(world, {**overrides, **change})
        deployed = world.replay(world.fleet(), HOURS).run(HOURS * 60, shortage.up)
        assert shortage.occurred_at is not None
        sizes = {
            disk(world, instance)
            for page in world.clients("ec2").get_paginator("describe_instances").paginate()
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if instance["State"]["Name"] == "running"
            and instance["LaunchTime"].timestamp() > shortage.occurred_at
        }
    return {
        "changes": shortage.changes,
        "survivors": shortage.survivors,
        "sizes": sizes,
        "served": [(ledger.availability, ledger.cost, ledger.counts) for ledger in (simulated, deployed)],
    }


def disk(world: World, instance: Any) -> int:
    volume = instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    return int(world.clients("ec2").describe_volumes(VolumeIds=[volume])["Volumes"][0]["Size"])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stack", "owned"),
    [
        ("dev", {"DesiredCapacity"}),
        ("fleet", {"DesiredCapacity", "TargetCapacity", "ExcessCapacityTerminationPolicy"}),
    ],
)
def test_changes_of_the_controller_are_no_difference(stack: str, owned: set[str]) -> None:
    moved, changes, untouched = apart(after_a_shortage, stack)
    assert moved == owned
    assert changes == ()
    assert untouched


def test_a_changed_mix_changes_its_group_alone() -> None:
    changes = apart(changed, "dev", {f"{CAPACITY}.spotPercentage": 50})
    assert {(change.type, change.name, *sorted(change.inputs)) for change in changes} == {
        (GROUP, "inference-primary", "mixedInstancesPolicy"),
        (PARAMETER, "inference-config", "insecureValue"),
        # A mixed group accepts no launch in one zone, and its controller may make none.
        ("aws:iam/rolePolicy:RolePolicy", "controller-function", "policy"),
        # How much on-demand is too much for long depends on the mix.
        (ALARM, "inference-on-demand", "alarmDescription", "threshold"),
    }


def changed(stack: str, change: dict[str, Any]) -> tuple[Change, ...]:
    with living(load(stack, small()), SEED) as world:
        return changes(world.deployment, load(stack, {**small(), **change}))


@pytest.mark.soak
@pytest.mark.parametrize("stack", ["dev", "fleet"])
def test_an_up_during_a_shortage_loses_no_worker(stack: str) -> None:
    found = apart(through_a_shortage, stack, {f"{CAPACITY}.rootVolumeGiB": 200})
    assert {change.type for change in found["changes"]} == {TEMPLATE, GROUP}
    before, after = found["survivors"]
    assert before == after != set()
    undisturbed, disturbed = found["served"]
    assert disturbed == undisturbed
    assert found["sizes"] == {200}
