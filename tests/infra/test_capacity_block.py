"""A job with a Capacity Block: its fallback starts instances there and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.settings import SettingsError
from tests.infra.declared import Run
from tests.infra.test_refusals import ONE, settings, training
from tests.infra.training import BLOCK, stack


def declared(tmp_path: Path, **changes: Any) -> Run:
    return stack(tmp_path / "block", capacityBlock=BLOCK, **changes)


def test_its_template_names_the_block_only(tmp_path: Path) -> None:
    found = declared(tmp_path)
    template = found.the("LaunchTemplate", "resnet-fallback")
    assert template["instanceType"] == "g6e.48xlarge"
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": BLOCK["reservation"]}
    }
    primary = found.the("LaunchTemplate", "resnet-primary")
    assert not primary.keys() & {"instanceType", "instanceMarketOptions", "capacityReservationSpecification"}


def test_its_group_is_of_one_type_in_the_blocks_zone(tmp_path: Path) -> None:
    found = declared(tmp_path)
    group = found.the("Group", "resnet-fallback")
    assert not group.keys() & {"mixedInstancesPolicy", "warmPool", "capacityReservationSpecification"}
    assert group["launchTemplate"]["id"] == "gpu-spot-dev-resnet-fallback-id"
    [subnet] = group["vpcZoneIdentifiers"]
    assert "us-west-2b" in subnet
    assert len(found.the("Group", "resnet-primary")["vpcZoneIdentifiers"]) == 3


def test_the_controllers_configuration_has_the_block(tmp_path: Path) -> None:
    config = json.loads(declared(tmp_path).the("Parameter", "resnet-config")["insecureValue"])
    assert config["block"] == BLOCK["reservation"]
    # There is no other on-demand that spot could be compared with.
    assert config["onDemandPrices"] == {}


def test_the_image_of_its_type_boots_in_the_block(tmp_path: Path) -> None:
    mine = "ami-0123456789abcdef0"
    capacity = {
        "kind": "mixed-asg",
        "target": 1,
        "instanceTypes": ["g5.xlarge", "g6.xlarge"],
        "amis": {"g6e": mine},
    }
    found = declared(tmp_path, capacity=capacity)
    assert found.the("LaunchTemplate", "resnet-fallback")["imageId"] == mine
    assert found.the("LaunchTemplate", "resnet-primary")["imageId"] != mine


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"zone": "us-west-2d"},
            "training: capacityBlock of 'resnet' is in 'us-west-2d', allowed: us-west-2a, ",
        ),
        ({"reservation": "cr-1"}, "training[0].capacityBlock.reservation: "),
        ({"instanceType": "g9.xlarge"}, "training[0].capacityBlock: 'g9.xlarge' is not a known "),
        ({"instanceType": "g5g.metal"}, "training[0].capacityBlock: "),
    ],
)
def test_an_unusable_block_is_rejected(changes: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings("dev", training(capacityBlock=BLOCK | changes))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"onDemandBase": 1}, "onDemandBase"),
        ({"fallback": {"enabled": False}}, "is the job's fallback"),
        ({"fallback": {"warmInstances": 1}}, "is the job's fallback"),
        ({"fallback": {"reservation": {"source": "cr-00000000", "count": 1}}}, "is the job's fallback"),
    ],
)
def test_keys_that_a_block_replaces_are_rejected_with_it(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=r"training\[0\]\.capacityBlock: cr-0123456789abcdef0 ") as caught:
        settings("dev", training(capacityBlock=BLOCK, capacity=ONE | extra))
    assert said in str(caught.value)
