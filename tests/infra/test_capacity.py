"""Capacity beside the usual groups: Spot fleets, reservations, Capacity Blocks."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from contracts import names
from infra.components.capacity import overrides
from infra.schema.capacity import AllocationStrategy
from tests.infra.declared import Run, edited_stack, in_capacity, run, shipped
from tests.infra.training import BLOCK, job, stack


@pytest.fixture(scope="module")
def found() -> Run:
    """A job with a Capacity Block."""
    return stack(capacityBlock=BLOCK)


def test_its_template_names_the_block_only(found: Run) -> None:
    template = found.the("LaunchTemplate", "resnet-fallback")
    assert template["instanceType"] == "g6e.48xlarge"
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": BLOCK["reservation"]}
    }
    primary = found.the("LaunchTemplate", "resnet-primary")
    assert not primary.keys() & {"instanceType", "instanceMarketOptions", "capacityReservationSpecification"}


def test_its_group_is_of_one_type_in_the_blocks_zone(found: Run) -> None:
    group = found.the("Group", "resnet-fallback")
    assert not group.keys() & {"mixedInstancesPolicy", "warmPool", "capacityReservationSpecification"}
    assert group["launchTemplate"]["id"] == "gpu-spot-dev-resnet-fallback-id"
    [subnet] = group["vpcZoneIdentifiers"]
    assert "us-west-2b" in subnet
    assert len(found.the("Group", "resnet-primary")["vpcZoneIdentifiers"]) == 3


def test_the_controllers_configuration_has_the_block(found: Run) -> None:
    config = found.config("resnet")
    assert config["block"] == BLOCK["reservation"]
    # There is no other on-demand that spot could be compared with.
    assert config["onDemandPrices"] == {}


def test_the_image_of_its_type_boots_in_the_block() -> None:
    mine = "ami-0123456789abcdef0"
    one = stack(capacityBlock=BLOCK, capacity={**job()["capacity"], "amis": {"g6e": mine}})
    assert one.the("LaunchTemplate", "resnet-fallback")["imageId"] == mine
    assert one.the("LaunchTemplate", "resnet-primary")["imageId"] != mine


ONE = "cr-0123456789abcdef0"
MANY = "arn:aws:resource-groups:us-west-2:123456789012:group/reserved"


def reserving(source: str) -> Run:
    return edited_stack(in_capacity(fallback={"reservation": {"source": source, "count": 2}}))


@pytest.mark.parametrize(
    ("source", "key"), [(ONE, "capacityReservationIds"), (MANY, "capacityReservationResourceGroupArns")]
)
def test_the_fallback_launches_into_it_first(source: str, key: str) -> None:
    declared = reserving(source)
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


def test_the_controllers_configuration_has_the_reserved_slots() -> None:
    assert reserving(ONE).config("inference")["reserved"] == 2


def test_without_a_reservation_a_group_has_no_such_properties() -> None:
    fallback = run("known").the("Group", "inference-fallback")
    assert "capacityReservationSpecification" not in fallback
    assert "availabilityZoneDistribution" not in fallback


SHARES_OF_SEVEN: Final = [
    # spotPercentage, onDemandBase, On-Demand: the base, then the percentage of the rest, rounded up
    (0, 0, 7),
    (0, 2, 7),
    (25, 0, 6),  # 5.25
    (25, 2, 6),  # 2 + 3.75
    (75, 0, 2),  # 1.75
    (75, 2, 4),  # 2 + 1.25
    (100, 0, 0),
    (100, 2, 2),
]


A_REQUEST: Final = {"fleetType": "request", "fallback": {"enabled": False}}


def fleet(known: Run) -> dict[str, Any]:
    return known.the("SpotFleetRequest", "inference-primary")


def changed(**capacity: Any) -> Run:
    return edited_stack(in_capacity(**capacity), "fleet")


def test_it_starts_empty_and_the_controller_owns_its_capacities() -> None:
    [declared] = [one for one in shipped("fleet").declared if one["type"].endswith(":SpotFleetRequest")]
    assert (declared["inputs"]["targetCapacity"], declared["inputs"]["onDemandTargetCapacity"]) == (0, 0)
    assert declared["ignore_changes"] == [
        "targetCapacity",
        "onDemandTargetCapacity",
        "excessCapacityTerminationPolicy",
    ]
    assert declared["replace_on_changes"] == []


def test_it_asks_for_every_type_in_every_subnet_in_order() -> None:
    [config] = fleet(shipped("fleet"))["launchTemplateConfigs"]
    pools = [(o["instanceType"], o["subnetId"], o["priority"]) for o in config["overrides"]]
    assert len(set(pools)) == 12
    assert [kind for kind, _, priority in pools if priority == 1] == ["g6.xlarge"] * 3
    assert 0 not in [priority for _, _, priority in pools]  # the provider does not send it
    assert [priority for _, _, priority in pools] == sorted(p for _, _, p in pools)


def test_a_new_template_version_does_not_replace_it() -> None:
    [config] = fleet(shipped("fleet"))["launchTemplateConfigs"]
    assert config["launchTemplateSpecification"]["version"] == "$Latest"


def test_its_template_holds_an_image_id_because_fleets_read_no_parameters() -> None:
    assert shipped("fleet").the("LaunchTemplate", "inference-primary")["imageId"] == "ami-0123456789abcdef0"


def test_only_the_controller_terminates_its_instances_and_deleting_it_terminates_all() -> None:
    given = fleet(shipped("fleet"))
    assert given["fleetType"] == "maintain"
    assert given["excessCapacityTerminationPolicy"] == "NoTermination"
    assert given["terminateInstancesOnDelete"] == "true"
    assert given["instanceInterruptionBehaviour"] == "terminate"


def test_what_would_come_back_as_a_replacing_change_is_said() -> None:
    given = fleet(shipped("fleet"))
    assert (given["loadBalancers"], given["targetGroupArns"], given["instancePoolsToUseCount"]) == ([], [], 1)


def test_its_instances_carry_the_tags_by_which_the_controller_finds_them() -> None:
    template = shipped("fleet").the("LaunchTemplate", "inference-primary")
    [tags] = [s["tags"] for s in template["tagSpecifications"] if s["resourceType"] == "instance"]
    owner = {names.TAG_STACK: "fleet", names.TAG_GROUP: "inference", names.TAG_GROUP_ROLE: "primary"}
    assert owner.items() <= tags.items()


def test_the_controller_finds_it_by_its_request_id() -> None:
    of_fleet, of_mix = (shipped(stack).config("inference") for stack in ("fleet", "dev"))
    assert of_fleet == {
        **of_mix,
        "kind": "spot-fleet",
        "primary": "gpu-spot-fleet-inference-primary-id",
        "fallback": "gpu-spot-fleet-inference-fallback",
    }


def test_the_same_fallback_stands_behind_it() -> None:
    of_fleet = shipped("fleet").the("Group", "inference-fallback")
    of_mix = shipped("dev").the("Group", "inference-fallback")
    assert of_fleet["suspendedProcesses"] == of_mix["suspendedProcesses"]
    assert len(shipped("fleet").of("Group")) == 1


def test_its_events_wake_the_controller_and_only_where_there_is_a_fleet() -> None:
    pattern = json.loads(shipped("fleet").the("EventRule", "fleet")["eventPattern"])
    assert pattern["source"] == ["aws.ec2spotfleet"]
    assert "EC2 Spot Fleet Error" in pattern["detail-type"]
    assert "fleet" not in shipped("dev").of("EventRule")


def test_only_fleets_of_this_account_may_take_its_role() -> None:
    [statement] = json.loads(shipped("fleet").the("Role", "inference-fleet")["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": "spotfleet.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": "123456789012"}


def test_every_strategy_of_the_settings_has_the_fleets_word() -> None:
    assert set(overrides.FLEET_STRATEGIES) == set(AllocationStrategy.__args__)  # type: ignore[attr-defined]


def test_prices_and_requirements_reach_it() -> None:
    wanted = {"acceleratorNames": ["L4"], "accelerators": {"max": 1}, "memoryGiB": {"min": 16, "max": 64}}
    known = changed(maxPrice=0.9, instanceTypes=None, instanceRequirements=wanted)
    given = fleet(known)
    assert (given["spotPrice"], given["onDemandAllocationStrategy"]) == ("0.9", "lowestPrice")
    choices = given["launchTemplateConfigs"][0]["overrides"]
    assert len(choices) == 3
    assert all("priority" not in choice and "instanceType" not in choice for choice in choices)
    asked = choices[0]["instanceRequirements"]
    assert asked["memoryMib"] == {"min": 16_384, "max": 65_536}
    assert asked["vcpuCount"] == {"min": 1, "max": 100_000}  # an end left open goes out as 0
    assert asked["acceleratorCount"] == {"min": 1, "max": 1}
    assert asked["allowedInstanceTypes"] == ["g6.xlarge", "g6.2xlarge", "g6.4xlarge"]
    config = known.config("inference")
    assert set(config["slots"]) == set(asked["allowedInstanceTypes"])


def test_a_request_fleet_is_requested_once_and_not_maintained() -> None:
    known = changed(**A_REQUEST, onDemandBase=2, instanceTypes=["g6.xlarge", "g6.12xlarge"], unit="gpus")
    [declared] = [one for one in known.declared if one["type"].endswith(":SpotFleetRequest")]
    given = declared["inputs"]
    assert (given["targetCapacity"], given["onDemandTargetCapacity"]) == (8, 2)
    assert "excessCapacityTerminationPolicy" not in given
    # It cannot be modified: asking for another capacity is asking anew.
    assert declared["ignore_changes"] == []
    assert declared["replace_on_changes"] == ["targetCapacity", "onDemandTargetCapacity"]
    weighed = {
        o["instanceType"]: o["weightedCapacity"] for o in given["launchTemplateConfigs"][0]["overrides"]
    }
    assert weighed == {"g6.xlarge": 1, "g6.12xlarge": 4}
    assert not known.of("Group")
    assert list(known.of("Parameter")) == ["inference-agent"]
    assert "fleet" not in known.of("EventRule")
    assert known.exports["groups"]["inference"].get("control") is None
    assert not [name for name in known.of("MetricAlarm") if "inference" in name]


@pytest.mark.parametrize(("spot_percentage", "base", "on_demand"), SHARES_OF_SEVEN)
def test_a_request_fleet_is_divided_when_it_is_declared(
    spot_percentage: int, base: int, on_demand: int
) -> None:
    inputs = fleet(changed(**A_REQUEST, target=7, onDemandBase=base, spotPercentage=spot_percentage))
    assert (inputs["targetCapacity"], inputs["onDemandTargetCapacity"]) == (7, on_demand)


@pytest.mark.parametrize(("spot_percentage", "base", "_"), SHARES_OF_SEVEN)
def test_a_maintain_fleet_is_the_same_resource_with_every_share(
    spot_percentage: int, base: int, _: int
) -> None:
    known = changed(target=7, onDemandBase=base, spotPercentage=spot_percentage)
    assert fleet(known) == fleet(shipped("fleet"))
    assert (fleet(known)["targetCapacity"], fleet(known)["onDemandTargetCapacity"]) == (0, 0)
    config = known.config("inference")
    assert (config["base"], config["spotPercentage"]) == (base, spot_percentage)
