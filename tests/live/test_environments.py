"""Shipped environments are created as their stack files say, as plain boto3 sees them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.apart import in_json
from tests.live import environment

AWS = "com.amazonaws.us-west-2"
STACKS = ("dev", "fleet", "prod")


@cache
def seen(stack: str) -> dict[str, Any]:
    return in_json(environment.seen, stack)


@pytest.mark.parametrize("stack", STACKS)
def test_resources_of_every_stack(stack: str) -> None:
    here = seen(stack)
    assert here["network"]["gateways"] == [f"{AWS}.dynamodb", f"{AWS}.s3"]
    assert here["network"]["default_rules"] == []
    watched = here["monitoring"]
    assert watched["heard_by"] == [watched["topic"]]
    # A service has two of its own, and the health checker has two.
    assert len(watched["alarms"]) == 14 + 4
    assert watched["alarms"][f"gpu-spot-{stack}-inference-shortage"] == "Shortage"
    assert watched["widgets"] == 9


def test_a_small_stack_has_nothing_that_it_did_not_ask_for() -> None:
    here = seen("dev")
    assert (here["network"]["nats"], here["network"]["interfaces"], here["network"]["flow_logs"]) == (
        1,
        [],
        [],
    )
    assert here["storage"] == {"buckets": {}, "repositories": [], "files": None}
    assert here["monitoring"]["budgets"] == []
    assert here["fleets"] == []


def test_the_fleet_waits_for_the_controller() -> None:
    [fleet] = seen("fleet")["fleets"]
    assert fleet == {
        "id": seen("fleet")["groups"]["inference"]["primary"],
        "target": 0,
        "strategy": "priceCapacityOptimized",
    }


def test_production_reaches_aws_through_endpoints_only() -> None:
    here = seen("prod")["network"]
    assert (here["nats"], here["subnets"]) == (0, 4)
    assert here["interfaces"] == [[4, 1, True]] * 5
    assert here["flow_logs"] == [[True, "ALL", "cloud-watch-logs"]]


def test_production_keeps_files_buckets_and_images() -> None:
    here = seen("prod")["storage"]
    assert here["files"] == {
        "encrypted": True,
        "mount_targets": 4,
        "access_points": ["/artifacts", "/checkpoints"],
        "lifecycle": [
            {"TransitionToIA": "AFTER_30_DAYS"},
            {"TransitionToPrimaryStorageClass": "AFTER_1_ACCESS"},
        ],
        "effects": ["Allow", "Deny"],
    }
    assert {name: bucket["rules"] for name, bucket in here["buckets"].items()} == {
        "datasets": ["old-versions"],
        "artifacts": ["expire", "old-versions"],
    }
    for bucket in here["buckets"].values():
        assert all(bucket["private"].values())
        assert len(bucket["private"]) == 4
        assert (bucket["versions"], bucket["encryption"], bucket["denied"]) == ("Enabled", "AES256", "Deny")
        assert bucket["tags"]["gpu-spot:stack"] == "prod"
        assert bucket["tags"]["environment"] == "production"
    assert here["repositories"] == [{"tags": "IMMUTABLE", "scanned": True, "keeps": 30}]


def test_production_has_a_budget_for_its_tag() -> None:
    here = seen("prod")["monitoring"]
    [(limit, filters)] = here["budgets"]
    assert (float(limit["Amount"]), limit["Unit"]) == (12_000, "USD")
    assert filters == {"TagKeyValue": ["user:gpu-spot:stack$prod"]}
    assert here["notifications"] == [2]


def test_resources_without_emulation_are_listed() -> None:
    fleet_inputs = [line for line in seen("fleet")["no_effect"] if "SpotFleetRequest" in line]
    assert [line.partition(": ")[2] for line in fleet_inputs] == [
        "excessCapacityTerminationPolicy",
        "replaceUnhealthyInstances",
        "terminateInstancesOnDelete",
        "waitForFulfillment",
    ]
