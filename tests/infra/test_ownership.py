"""Who owns what: what changes when the settings change, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.infra.declared import ROOT, Run, run, variant


def two_services(kind: str, tmp_path: Path, **capacity: Any) -> Run:
    """Run a stack with two services of a kind, the second one's capacity changed."""

    def change(config: dict[str, Any]) -> None:
        first = config["gpu-spot:services"][0]
        second = {**first, "name": "batch", "capacity": {**first["capacity"], **capacity}}
        config["gpu-spot:services"].append(second)

    folder = tmp_path / ("changed" if capacity else "plain")
    folder.mkdir()
    return run("known", variant(folder, change, ROOT / f"Pulumi.{kind}.yaml"), kind)


def differences(before: Run, after: Run, *, shared_only: bool = False) -> dict[str, set[str]]:
    """Return the inputs that an update would change, by resource; what others own is left out.

    Both runs must declare the same resources, unless only what they share is asked for.
    """

    def seen(of: Run) -> dict[tuple[str, str], dict[str, Any]]:
        return {
            (one["type"], one["name"]): {
                key: value for key, value in one["inputs"].items() if key not in one["ignore_changes"]
            }
            for one in of.declared
        }

    old, new = seen(before), seen(after)
    if shared_only:
        old = {key: inputs for key, inputs in old.items() if key in new}
    else:
        assert old.keys() == new.keys()
    return {
        f"{kind.rpartition(':')[2]} {name}": {
            key
            for key in old[kind, name].keys() | new[kind, name].keys()
            if old[kind, name].get(key) != new[kind, name].get(key)
        }
        for kind, name in old
        if old[kind, name] != new[kind, name]
    }


@pytest.mark.parametrize(
    ("kind", "capacity", "changes"),
    [
        (
            "dev",
            {"onDemandBase": 2, "spotPercentage": 80},
            {
                "Group gpu-spot-dev-batch-primary": {"mixedInstancesPolicy"},
                "Group gpu-spot-dev-batch-fallback": {"warmPool"},  # as large as the spot share
                "Parameter gpu-spot-dev-batch-config": {"insecureValue"},
            },
        ),
        (
            "dev",
            {"instanceTypes": ["g6.xlarge", "g5.xlarge"]},
            {
                "Group gpu-spot-dev-batch-primary": {"mixedInstancesPolicy"},
                "Group gpu-spot-dev-batch-fallback": {"mixedInstancesPolicy"},
                "Parameter gpu-spot-dev-batch-config": {"insecureValue"},
            },
        ),
        # The target is the controller's business: no capacity is declared but what stands by.
        (
            "dev",
            {"target": 6},
            {
                "Group gpu-spot-dev-batch-fallback": {"warmPool"},
                "Parameter gpu-spot-dev-batch-target": {"insecureValue"},
            },
        ),
        # So are a fleet's base and percentage: they change in place, by the controller.
        (
            "fleet",
            {"onDemandBase": 2, "spotPercentage": 75},
            {
                "Group gpu-spot-fleet-batch-fallback": {"warmPool"},
                "Parameter gpu-spot-fleet-batch-config": {"insecureValue"},
            },
        ),
        (
            "fleet",
            {"target": 6, "fallback": {"warmInstances": 8}},
            {"Parameter gpu-spot-fleet-batch-target": {"insecureValue"}},
        ),
        (
            "fleet",
            {"allocationStrategy": "capacity-optimized"},
            {"SpotFleetRequest gpu-spot-fleet-batch-primary": {"allocationStrategy"}},
        ),
        (
            "fleet",
            {"rootVolumeGiB": 200},
            {
                "LaunchTemplate gpu-spot-fleet-batch-primary": {"blockDeviceMappings"},
                "LaunchTemplate gpu-spot-fleet-batch-fallback": {"blockDeviceMappings"},
            },
        ),
    ],
)
def test_a_changed_capacity_changes_its_own_group_only(
    kind: str, capacity: dict[str, Any], changes: dict[str, set[str]], tmp_path: Path
) -> None:
    found = differences(two_services(kind, tmp_path), two_services(kind, tmp_path, **capacity))
    # How many on-demand instances are too many follows from the mix.
    alarms = {name: keys for name, keys in found.items() if name.startswith("MetricAlarm")}
    assert all("batch" in name for name in alarms)
    assert {name: keys for name, keys in found.items() if name not in alarms} == changes


def test_another_zone_or_way_out_moves_no_subnet(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:network"]["zones"] = ["us-west-2d", "us-west-2c", "us-west-2b", "us-west-2a"]
        config["gpu-spot:network"]["egress"] = "nat-gateway-per-zone"

    before, after = run("known"), run("known", variant(tmp_path, change))
    for name, subnet in before.of("Subnet").items():
        assert after.of("Subnet")[name] == subnet
