"""Reserved on-demand is used first, and the controller knows how much of it there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.declared import Run, run, variant

ONE = "cr-0123456789abcdef0"
MANY = "arn:aws:resource-groups:us-west-2:123456789012:group/reserved"


def reserving(tmp_path: Path, source: str) -> Run:
    def change(config: dict[str, Any]) -> None:
        fallback = config["gpu-spot:services"][0]["capacity"].setdefault("fallback", {})
        fallback["reservation"] = {"source": source, "count": 2}

    return run("known", variant(tmp_path, change))


@pytest.mark.parametrize(
    ("source", "key"), [(ONE, "capacityReservationIds"), (MANY, "capacityReservationResourceGroupArns")]
)
def test_the_fallback_launches_into_it_first(tmp_path: Path, source: str, key: str) -> None:
    declared = reserving(tmp_path, source)
    fallback = declared.the("Group", "inference-fallback")
    assert fallback["capacityReservationSpecification"] == {
        "capacityReservationPreference": "capacity-reservations-first",
        "capacityReservationTarget": {key: [source]},
    }
    distribution = fallback["availabilityZoneDistribution"]
    assert distribution == {"capacityDistributionStrategy": "reservations-then-balanced"}
    primary = declared.the("Group", "inference-primary")
    assert "capacityReservationSpecification" not in primary
    assert "availabilityZoneDistribution" not in primary


def test_the_controllers_configuration_has_the_reserved_slots(tmp_path: Path) -> None:
    declared = reserving(tmp_path, ONE)
    config = declared.the("Parameter", "inference-config")["insecureValue"]
    assert json.loads(config)["reserved"] == 2


def test_without_a_reservation_a_group_has_no_such_properties() -> None:
    fallback = run("known").the("Group", "inference-fallback")
    assert "capacityReservationSpecification" not in fallback
    assert "availabilityZoneDistribution" not in fallback
