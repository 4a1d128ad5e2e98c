"""Spot Fleets with every share, deployed on moto: declared, reconciled, scaled, and with another share."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from contracts import names
from lambdas.core.capacity.memory import SETTLE_SECONDS
from tests.apart import apart
from tests.e2e.world import World, living, load
from tests.oracles.shares import SHARES, on_demand_by_awss_rule

pytestmark = pytest.mark.soak

DECLARED_TARGET: Final = 8
SCALED_TARGETS: Final = (7, 13, 3)
TYPES: Final = ["g6.xlarge", "g5.xlarge"]
Targets = dict[str, tuple[int, int]]
"""Target and On-Demand target of each fleet, by group."""


def name(fleet_type: str, base: int, percentage: int) -> str:
    return f"{fleet_type}-{base}-{percentage}"


@pytest.fixture(scope="module")
def seen() -> dict[str, Targets]:
    return apart(all_shares)


@pytest.mark.parametrize(("base", "percentage"), SHARES)
def test_a_request_fleet_is_declared_with_its_share(
    seen: dict[str, Targets], base: int, percentage: int
) -> None:
    share = on_demand_by_awss_rule(DECLARED_TARGET, base, percentage)
    for moment in seen.values():  # nobody changes it later
        assert moment[name("request", base, percentage)] == (DECLARED_TARGET, share)


@pytest.mark.parametrize(("base", "percentage"), SHARES)
def test_a_maintain_fleet_starts_empty_and_gets_its_share_at_the_first_pass(
    seen: dict[str, Targets], base: int, percentage: int
) -> None:
    group = name("maintain", base, percentage)
    assert seen["declared"][group] == (0, 0)
    share = on_demand_by_awss_rule(DECLARED_TARGET, base, percentage)
    assert seen["reconciled"][group] == (DECLARED_TARGET, share)


@pytest.mark.parametrize("target", SCALED_TARGETS)
@pytest.mark.parametrize(("base", "percentage"), SHARES)
def test_a_scaled_fleet_has_the_share_of_each_target(
    seen: dict[str, Targets], base: int, percentage: int, target: int
) -> None:
    share = on_demand_by_awss_rule(target, base, percentage)
    assert seen[str(target)][name("maintain", base, percentage)] == (target, share)


@pytest.mark.parametrize(("base", "percentage"), SHARES)
def test_a_changed_share_is_applied_within_a_minute(
    seen: dict[str, Targets], base: int, percentage: int
) -> None:
    target = SCALED_TARGETS[-1]
    share = on_demand_by_awss_rule(target, *changed(base, percentage))
    assert seen["changed"][name("maintain", base, percentage)] == (target, share)


def changed(base: int, percentage: int) -> tuple[int, int]:
    return 2 - base, 100 - percentage


def all_shares() -> dict[str, Targets]:
    config = load("fleet", {"services": [service(*case) for case in cases()]})
    with living(config) as world:
        moments = {"declared": targets(world)}
        reconcile(world)
        moments["reconciled"] = targets(world)
        for target in SCALED_TARGETS:
            for base, percentage in SHARES:
                write(world, name("maintain", base, percentage), "target", str(target))
            reconcile(world)
            moments[str(target)] = targets(world)
        for base, percentage in SHARES:
            group = name("maintain", base, percentage)
            other_base, other_percentage = changed(base, percentage)
            document = json.loads(read(world, group, "config"))
            document |= {"base": other_base, "spotPercentage": other_percentage}
            write(world, group, "config", json.dumps(document))
        reconcile(world)
        moments["changed"] = targets(world)
    return moments


def cases() -> list[tuple[str, int, int]]:
    return [(fleet_type, *share) for fleet_type in ("maintain", "request") for share in SHARES]


def service(fleet_type: str, base: int, percentage: int) -> dict[str, Any]:
    capacity = {
        "kind": "spot-fleet",
        "fleetType": fleet_type,
        "target": DECLARED_TARGET,
        "max": 16,
        "onDemandBase": base,
        "spotPercentage": percentage,
        "instanceTypes": TYPES,
        # Another policy asks for less while nothing is launched.
        "fallback": {"enabled": False, "policy": "ready-handover"},
    }
    return {"name": name(fleet_type, base, percentage), "capacity": capacity}


def targets(world: World) -> Targets:
    fleets = world.clients("ec2").describe_spot_fleet_requests()["SpotFleetRequestConfigs"]
    found: Targets = {}
    for fleet in fleets:
        config = fleet["SpotFleetRequestConfig"]
        [group] = [tag["Value"] for tag in fleet["Tags"] if tag["Key"] == names.TAG_GROUP]
        found[group] = config["TargetCapacity"], config["OnDemandTargetCapacity"]
    return found


def reconcile(world: World) -> None:
    """Let the deployed controller run once, and a minute pass: until then a fleet is modified."""
    world.cloud.tick_schedule()
    for _ in world.cloud.run_functions():
        pass
    world.cloud.set_time(world.clock.now + SETTLE_SECONDS)


def read(world: World, group: str, leaf: str) -> str:
    parameter = names.group_parameter("fleet", group, leaf)
    return str(world.clients("ssm").get_parameter(Name=parameter)["Parameter"]["Value"])


def write(world: World, group: str, leaf: str, value: str) -> None:
    parameter = names.group_parameter("fleet", group, leaf)
    world.clients("ssm").put_parameter(Name=parameter, Value=value, Overwrite=True)
