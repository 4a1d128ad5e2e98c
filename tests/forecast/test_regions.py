"""Every region and family that validates has a row with a price or "not priced", and totals are sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from gpu_spot.forecast import stack, text
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import Range
from gpu_spot.forecast.stack import StackForecast
from gpu_spot.preflight.stack import Declared, Stack
from infra.catalogue import accelerators, price_tables
from infra.catalogue.on_demand_prices import price
from infra.schema import Settings
from infra.settings import load_settings
from tests.forecast.conftest import WEEK, job, service

REGIONS = sorted(
    {
        *(
            name
            for part in ("aws", "aws-us-gov")
            for name in boto3.Session().get_available_regions("ec2", part)
        ),
        *(table.region for table in price_tables.at_hand()),
    }
)
BASIS = text.Basis("modelled", "A range.", "assumed", "tables")
HOST = {
    "name": "host",
    "tenants": [
        {
            **{"name": "a", "uid": 2001, "cpus": 2, "memoryGiB": 8, "gpus": 1, "dataGiB": 50},
            "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/work@sha256:" + 64 * "1",
        }
    ],
}


def settings_of(region: str, types: list[str], hosts: tuple[dict[str, Any], ...] = ()) -> Settings:
    """Return the settings of a stack with a service and a job, both of these types."""
    capacity = {"instanceTypes": types, "ami": "ami-0123456789abcdef0"}
    return load_settings(
        {
            "aws:region": region,
            "gpu-spot:network": {
                **{"cidr": "10.20.0.0/16", "zones": [f"{region}a", f"{region}b"], "egress": "nat-gateway"}
            },
            "gpu-spot:services": [service("inference", **capacity)],
            "gpu-spot:training": [
                job("train", capacity={"kind": "mixed-asg", "target": 1, **capacity}, volumeGiB=100)
            ],
            "gpu-spot:sharedHosts": list(hosts),
        }
    )


def bill(settings: Settings) -> StackForecast:
    prices = Prices(settings.region)
    declared = [
        Declared("aws:ec2/natGateway:NatGateway", "nat", {}),
        Declared("aws:cloudwatch/metricAlarm:MetricAlarm", "alarm", {"namespace": "gpu-spot"}),
        Declared("aws:efs/fileSystem:FileSystem", "files", {}),
        Declared("aws:eks/cluster:Cluster", "cluster", {"version": "1.35"}),
        Declared(
            "aws:mq/broker:Broker",
            "broker",
            {"hostInstanceType": "mq.m7g.large", "deploymentMode": "CLUSTER_MULTI_AZ"},
        ),
    ]
    questions = stack.questions(settings, prices, None)
    slots = {question: WEEK for question in questions.values() if question is not None}
    return stack.forecast(settings, prices, questions, slots, Stack("x", settings, declared), 100.0)


def families() -> Iterator[list[str]]:
    for family in accelerators.FAMILIES:
        yield [name for name in accelerators.CATALOGUE if name.startswith(f"{family}.")]


@pytest.mark.parametrize("region", REGIONS)
def test_no_group_and_no_line_is_lost(region: str) -> None:
    for types in families():
        settings = settings_of(region, types)
        found = bill(settings)
        assert [group.name for group in found.groups] == list(settings.capacities)
        is_priced = price(types[0], region) is not None  # On-Demand buys the first type
        document = text.to_json(None, found, BASIS)["head"]
        total = 0.0
        for group in document["groups"]:
            assert (group["cost"] is not None) == is_priced
            total += group["volumes"] + (group["cost"]["middle"] if group["cost"] else 0.0)
            assert group["volumes"] > 0
        for line in document["lines"]:
            total += line["count"] * (line["each"] or 0.0)
            assert (line["each"] is None) == (line["what"] in document["not_priced"])
        assert document["month"]["middle"] == pytest.approx(total)
        shown = text.markdown(None, found, BASIS).splitlines()
        assert "broker mq.m7g.large, CLUSTER_MULTI_AZ" in shown[0]  # of which no price is shipped
        assert ("the instances of inference, the instances of train" in shown[0]) == (not is_priced)
        rows = [row for row in shown if row.startswith(("| inference ", "| train "))]
        assert len(rows) == 2
        assert all(("not priced" in row) == (not is_priced) for row in rows)
        for line in found.lines:
            assert (
                line.region == region
                or line.unit_price is None
                or any(note.startswith("- at prices of us-east-1") and line.item in note for note in shown)
            )


def test_the_families_of_the_catalogue_are_priced_somewhere() -> None:
    unpriced = {
        name for name in accelerators.CATALOGUE if all(price(name, region) is None for region in REGIONS)
    }
    assert unpriced == {"p5e.48xlarge", "trn2.3xlarge", "trn2.48xlarge"}


def test_a_shared_host_is_a_group_with_its_tenants_volumes() -> None:
    capacity = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g6.12xlarge"]}
    found = bill(settings_of("us-west-2", ["g6.xlarge"], ({**HOST, "capacity": capacity},)))
    [host] = [group for group in found.groups if group.name == "host"]
    on_demand = 4.6016 * 730
    assert host.cost is not None
    assert host.cost.middle == pytest.approx(0.4 * on_demand)
    assert host.volumes == pytest.approx((125 + 50) * 0.08)


def test_a_change_names_what_had_no_price_before() -> None:
    head = bill(settings_of("us-west-2", ["g6.xlarge"]))
    base = bill(settings_of("us-west-2", ["p5e.48xlarge"]))
    first = text.markdown(base, head, BASIS).splitlines()[0]
    assert "(before: without the instances of inference, the instances of train, broker" in first
    assert head.unknown_change(base) == ()
    assert base.unknown_change(head) == ("the instances of inference", "the instances of train")
    assert dataclasses.replace(base, groups=()).unknown_change(dataclasses.replace(base, lines=())) == (
        "broker mq.m7g.large, CLUSTER_MULTI_AZ",
    )


def test_availability_is_not_rounded_up_to_always() -> None:
    found = bill(settings_of("us-west-2", ["g6.xlarge"]))
    group = dataclasses.replace(found.groups[0], availability=Range(0.99951, 0.99997, 1.0))
    shown = text.markdown(None, dataclasses.replace(found, groups=(group,)), BASIS)
    assert "| 99.99 (99.95 to 100.00) |" in shown
