"""Prices from the Price List (API reference, "GetProducts") and from a recorded history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpu_spot.forecast import price_list
from gpu_spot.forecast.prices import spot_history
from lambdas.core.model import Pool

# Written after the form that the API reference gives, not recorded from AWS.
PRODUCT = Path(__file__).with_name("price_list.json").read_text("utf-8")


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return Stubber(boto3.client("pricing", region_name=price_list.REGION))


def asked(kind: str, token: str | None = None) -> dict[str, Any]:
    wanted = {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
        "instanceType": kind,
        "regionCode": "eu-west-1",
    }
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
    return {"ServiceCode": "AmazonEC2", "Filters": filters, **({"NextToken": token} if token else {})}


def test_the_price_on_demand_is_read_page_by_page_with_its_date(stubbed: Stubber) -> None:
    stubbed.add_response("get_products", {"PriceList": [], "NextToken": "more"}, asked("g6.xlarge"))
    stubbed.add_response("get_products", {"PriceList": [PRODUCT]}, asked("g6.xlarge", "more"))
    stubbed.add_response("get_products", {"PriceList": []}, asked("p5.48xlarge"))
    with stubbed:
        found = price_list.read(stubbed.client, ["p5.48xlarge", "g6.xlarge", "g6.xlarge"], "eu-west-1")
    assert found == ({"g6.xlarge": 0.898}, "2026-10-01")


def test_two_prices_of_one_type_are_refused(stubbed: Stubber) -> None:
    other = PRODUCT.replace("0.8980000000", "1.0")
    stubbed.add_response("get_products", {"PriceList": [PRODUCT, other]}, asked("g6.xlarge"))
    with stubbed, pytest.raises(ValueError, match=r"has 2 prices for g6\.xlarge in eu-west-1, expected one"):
        price_list.read(stubbed.client, ["g6.xlarge"], "eu-west-1")


def test_a_denied_request_is_reported(stubbed: Stubber) -> None:
    stubbed.add_client_error("get_products", "AccessDeniedException", "not authorized")
    with stubbed, pytest.raises(ValueError, match=r"cannot read the Price List: .*not authorized"):
        price_list.read(stubbed.client, ["g6.xlarge"], "eu-west-1")


def test_a_product_without_a_price_is_refused(stubbed: Stubber) -> None:
    stubbed.add_response("get_products", {"PriceList": [PRODUCT.replace('"USD": "0.898', '"CNY": "0.898')]})
    with stubbed, pytest.raises(ValueError, match=r"cannot parse the Price List's product for g6\.xlarge"):
        price_list.read(stubbed.client, ["g6.xlarge"], "eu-west-1")


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
