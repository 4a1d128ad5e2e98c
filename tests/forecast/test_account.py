"""Requests to the account and their results; botocore validates both against EC2's model."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpu_spot.forecast import account
from gpu_spot.forecast.prices import PRODUCTS
from infra.schema import Capacity
from lambdas.core.model import Pool

NOW = datetime(2026, 11, 22, tzinfo=UTC)
TYPES = ["g5.xlarge", "g6.xlarge"]


@pytest.fixture
def ec2() -> Stubber:
    return Stubber(boto3.client("ec2", region_name="us-west-2"))


def row(kind: str, zone: str, price: str, hour: int, product: str = PRODUCTS[0]) -> dict[str, Any]:
    return {
        **{"InstanceType": kind, "AvailabilityZone": zone, "SpotPrice": price},
        **{"ProductDescription": product, "Timestamp": NOW.replace(day=21, hour=hour)},
    }


def capacity(**values: Any) -> Capacity:
    return Capacity.model_validate(
        {"kind": "mixed-asg", "target": 4, "instanceTypes": tuple(TYPES), **values}, strict=False
    )


def test_the_price_now_is_the_last_change_of_each_pool_over_all_pages(ec2: Stubber) -> None:
    asked = {"InstanceTypes": TYPES, "ProductDescriptions": [*PRODUCTS], "StartTime": NOW}
    first = [row("g5.xlarge", "us-west-2a", "0.40", 3), row("g5.xlarge", "us-west-2a", "0.50", 9)]
    second = [row("g6.xlarge", "us-west-2b", "0.25", 1), row("g6.xlarge", "us-west-2b", "9", 2, "Windows")]
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": first, "NextToken": "more"}, asked)
    ec2.add_response(
        "describe_spot_price_history", {"SpotPriceHistory": second}, {**asked, "NextToken": "more"}
    )
    with ec2:
        found = account.spot_prices(ec2.client, ["g6.xlarge", *TYPES], NOW)
    assert found == {Pool("g5.xlarge", "us-west-2a"): 0.5, Pool("g6.xlarge", "us-west-2b"): 0.25}
    ec2.assert_no_pending_responses()


def test_a_score_is_for_the_spot_part_of_the_target(ec2: Stubber) -> None:
    asked = {"InstanceTypes": TYPES, "RegionNames": ["us-west-2"], "TargetCapacity": 3}
    answer = {"SpotPlacementScores": [{"Region": "us-west-2", "Score": 7}]}
    ec2.add_response("get_spot_placement_scores", answer, asked)
    groups = {"ocr": capacity(onDemandBase=1), "steady": capacity(onDemandBase=4)}
    with ec2:
        assert account.placement_scores(ec2.client, groups, "us-west-2") == {"ocr": 7}
    ec2.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("operation", "read"),
    [
        ("describe_spot_price_history", lambda client: account.spot_prices(client, TYPES, NOW)),
        (
            "get_spot_placement_scores",
            lambda client: account.placement_scores(client, {"ocr": capacity()}, "us-west-2"),
        ),
    ],
)
def test_a_refusal_is_one_line(ec2: Stubber, operation: str, read: Callable[[Any], object]) -> None:
    ec2.add_client_error(operation, "UnauthorizedOperation", "not you")
    with ec2, pytest.raises(ValueError, match=r"^cannot read the .*: .*not you$"):
        read(ec2.client)
