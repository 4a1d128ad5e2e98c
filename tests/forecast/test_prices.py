"""Prices from tables, a recorded history, and the account; botocore validates its requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpu_spot.forecast import account
from gpu_spot.forecast.prices import PRODUCTS, spot_history
from infra.catalogue import price_tables
from infra.schema import Capacity
from lambdas.core.model import Pool


def table_text(**changes: Any) -> str:
    table = {"region": "eu-west-1", "date": "2026-11-24", "source": "x", "usd": {}, **changes}
    return json.dumps({"tables": [table]})


@pytest.fixture
def project_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return the path of the project's file of prices, which does not exist yet."""
    file = tmp_path / "prices.json"
    monkeypatch.setattr(price_tables, "PROJECT_FILE", file)
    price_tables.forget()
    yield file
    price_tables.forget()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "no list 'tables'"),
        ('{"tables": [{}]}', "a table is not an object of date, region, source, usd"),
        (table_text(usd={"g6.xlarge": -1}), "is -1, allowed: a number above 0"),
        (table_text(usd={"g6.xlarge": True}), "is True, allowed: a number above 0"),
        (table_text(usd={"nat": 1}), "'nat' is not a price, allowed: instance types, ebs-gp3"),
        (table_text(date="yesterday"), "date 'yesterday', allowed: such as"),
    ],
)
def test_an_invalid_file_of_prices_is_reported(text: str, says: str, project_file: Path) -> None:
    project_file.write_text(text)
    with pytest.raises(ValueError, match="write it again with make prices") as refused:
        price_tables.find("g6.xlarge", "eu-west-1")
    assert says in str(refused.value)


def test_the_projects_file_adds_to_the_shipped_one(project_file: Path) -> None:
    assert price_tables.find("g6.xlarge", "eu-west-1") is None
    project_file.write_text(table_text(usd={"g6.xlarge": 0.898}))
    price_tables.forget()
    found = price_tables.find("g6.xlarge", "eu-west-1")
    assert found is not None
    assert (found.usd, found.source, found.date) == (0.898, "x", "2026-11-24")
    # A price that it does not have is still the shipped one, with its date.
    older = price_tables.find("g5.xlarge", "eu-west-1")
    assert older is not None
    assert older.date == "2026-01-21"


def test_the_shipped_file_is_as_an_update_writes_it() -> None:
    text = price_tables.SHIPPED_FILE.read_text("utf-8")
    assert price_tables.dumps(price_tables.parse(text)) == text


def row(price: str, at: str, product: str = "Linux/UNIX") -> dict[str, str]:
    return {
        "AvailabilityZone": "us-west-2a",
        "InstanceType": "g6.xlarge",
        "ProductDescription": product,
        "SpotPrice": price,
        "Timestamp": at,
    }


def test_of_a_history_the_newest_price_of_linux_counts() -> None:
    rows = [row("0.3", "2026-11-02T00:00:00Z"), row("0.2", "2026-11-01T00:00:00Z")]
    rows.append(row("0.9", "2026-11-03T00:00:00Z", "Windows"))
    assert spot_history(json.dumps({"SpotPriceHistory": rows})) == {Pool("g6.xlarge", "us-west-2a"): 0.3}


@pytest.mark.parametrize("text", ["", "[]", '{"SpotPriceHistory": [{}]}', '{"SpotPriceHistory": 1}'])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(invalid JSON|not a Spot price history): .+$"):
        spot_history(text)


NOW = datetime(2026, 11, 22, tzinfo=UTC)
TYPES = ["g5.xlarge", "g6.xlarge"]


@pytest.fixture
def ec2() -> Stubber:
    return Stubber(boto3.client("ec2", region_name="us-west-2"))


def sold(kind: str, zone: str, price: str, hour: int, product: str = PRODUCTS[0]) -> dict[str, Any]:
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
    first = [sold("g5.xlarge", "us-west-2a", "0.40", 3), sold("g5.xlarge", "us-west-2a", "0.50", 9)]
    second = [sold("g6.xlarge", "us-west-2b", "0.25", 1), sold("g6.xlarge", "us-west-2b", "9", 2, "Windows")]
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
