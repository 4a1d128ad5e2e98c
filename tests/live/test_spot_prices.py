"""EC2 returns the market's Spot prices in US dollars, and a test's capacity reservations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts.group import config as group_config
from lambdas.aws.capacity.capacity_blocks import CapacityBlocks
from lambdas.core.model import Pool
from pulumi_on_moto.fixes.ec2.placement import reserve
from rehearsal.cloud.local_cloud import LocalCloud
from tests.live.world import Running

BLOCK = "cr-0123456789abcdef0"
ENDS = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)


def block(running: Running, state: str) -> float | None:
    shown = {"CapacityReservationId": BLOCK, "State": state, "EndDate": ENDS}
    reserve(running.cloud._instances.ec2, shown)
    return CapacityBlocks(running.clients("ec2"))._end(BLOCK)


def test_a_block_is_there_as_long_as_it_is_active(running: Running) -> None:
    assert block(running, "scheduled") is None
    assert block(running, "active") == ENDS.timestamp()
    assert block(running, "expired") is None


def test_an_unknown_reservation_does_not_exist(running: Running) -> None:
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        running.clients("ec2").describe_capacity_reservations(CapacityReservationIds=["cr-00000000"])


PARAMETER = "/gpu-spot/dev/groups/inference/config"
PRICES = {"g5.xlarge": 2.0, "g6.xlarge": 1.0}


@pytest.fixture
def priced(running: Running) -> Iterator[LocalCloud]:
    """The sample, whose group knows what two of its types cost on-demand."""
    ssm = running.clients("ssm")
    text = ssm.get_parameter(Name=PARAMETER)["Parameter"]["Value"]
    config = replace(group_config.parse(text), on_demand_prices=PRICES)
    ssm.put_parameter(Name=PARAMETER, Value=group_config.dumps(config), Overwrite=True)
    try:
        yield LocalCloud(running.clients, running.deployment, running.clock)
    finally:
        ssm.put_parameter(Name=PARAMETER, Value=text, Overwrite=True)


def prices_of(cloud: LocalCloud, **asked: Any) -> dict[str, str]:
    found = cloud.clients("ec2").describe_spot_price_history(**asked)["SpotPriceHistory"]
    return {f"{one['InstanceType']}@{one['AvailabilityZone']}": one["SpotPrice"] for one in found}


def test_ec2_returns_the_latest_quotes(priced: LocalCloud) -> None:
    g5, g6, other = (Pool(kind, "us-west-2a") for kind in ("g5.xlarge", "g6.xlarge", "g4dn.xlarge"))
    priced.quote("inference", {g5: 0.3, g6: 0.3})
    assert prices_of(priced) == {"g5.xlarge@us-west-2a": "0.600000", "g6.xlarge@us-west-2a": "0.300000"}
    priced.quote("inference", {g5: 0.5, other: 0.3})
    now = datetime.fromtimestamp(priced.clock.now, UTC)
    # A share of an unknown On-Demand price is not a price.
    assert prices_of(priced, StartTime=now, EndTime=now) == {
        "g5.xlarge@us-west-2a": "1.000000",
        "g6.xlarge@us-west-2a": "0.300000",
    }


def test_of_a_time_ec2_returns_the_changes_and_the_price_before(priced: LocalCloud) -> None:
    pool, start = Pool("g5.xlarge", "us-west-2a"), priced.clock.now
    for minute, share in ((0, 0.2), (10, 0.4), (20, 0.4), (30, 0.6)):
        priced.clock.set(start + 60 * minute)
        priced.quote("inference", {pool: share})
    begin, end = (datetime.fromtimestamp(start + 60 * minute, UTC) for minute in (15, 60))
    history = priced.clients("ec2").describe_spot_price_history(
        InstanceTypes=["g5.xlarge"], StartTime=begin, EndTime=end
    )["SpotPriceHistory"]
    assert [(one["SpotPrice"], one["Timestamp"].timestamp() - start) for one in history] == [
        ("1.200000", 1800),
        ("0.800000", 600),
    ]


def test_it_is_asked_by_type_zone_and_product(priced: LocalCloud) -> None:
    zones = ("us-west-2a", "us-west-2b")
    priced.quote("inference", {Pool(kind, zone): 0.5 for kind in PRICES for zone in zones})
    zone = [{"Name": "availability-zone", "Values": ["us-west-2b"]}]
    assert prices_of(priced, InstanceTypes=["g5.xlarge"], Filters=zone) == {
        "g5.xlarge@us-west-2b": "1.000000"
    }
    assert prices_of(priced, ProductDescriptions=["Linux/UNIX", "Windows"]) == prices_of(priced)
    assert prices_of(priced, ProductDescriptions=["Windows"]) == {}
