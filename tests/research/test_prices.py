"""Prices from the Price List (API reference, "GetProducts")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.catalogue import price_tables
from lambdas.core.model import Pool
from research import prices

# Written after the form that the API reference gives, not recorded from AWS.
PRODUCT = Path(__file__).with_name("price_list.json").read_text("utf-8")


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return Stubber(boto3.client("pricing", region_name=prices.REGION))


INSTANCES = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
BROKERS = {"productFamily": "Broker Instances", "brokerEngine": "RabbitMQ", "deploymentOption": "Single-AZ"}


def asked(service: str, *filters: tuple[str, str, str], token: str | None = None) -> dict[str, Any]:
    terms = [{"Type": kind, "Field": name, "Value": value} for kind, name, value in filters]
    return {"ServiceCode": service, "Filters": terms, **({"NextToken": token} if token else {})}


def terms_of(**filters: str) -> list[tuple[str, str, str]]:
    return [("TERM_MATCH", name, value) for name, value in filters.items()]


def usage(name: str) -> tuple[str, str, str]:
    return ("CONTAINS", "usagetype", name)


def product(
    usage_type: str, usd: str, unit: str = "Hrs", region: str = "eu-north-1", **attributes: str
) -> str:
    document = json.loads(PRODUCT)
    document["product"]["attributes"] = {"usagetype": usage_type, "regionCode": region, **attributes}
    [term] = document["terms"]["OnDemand"].values()
    [dimension] = term["priceDimensions"].values()
    dimension |= {"unit": unit, "pricePerUnit": {"USD": usd}}
    return json.dumps(document)


ZONE = product("ATL1-BoxUsage:g6.xlarge", "0.9", region="us-east-1-atl-1", locationType="AWS Local Zone")
WAVELENGTH = product("x", "0.95", region="eu-west-1", locationType="AWS Wavelength Zone")
USAGE: list[tuple[str, str, list[dict[str, str]]]] = [
    ("AmazonEC2", "EBS:VolumeUsage.gp3", [{"usd": "0.0836", "unit": "GB-Mo"}]),
    ("AmazonEC2", "EBS:VolumeP-Throughput.gp3", [{"usd": "42.8032", "unit": "GiBps-mo"}]),
    (
        *("AmazonEC2", "NatGateway-Hours"),
        [
            {"usd": "0.046"},
            {"usd": "0.092", "usage_type": "EUN1-RegionalNatGateway-Hours"},
            {"usd": "0.045", "usage_type": "NatGateway-Hours", "region": "us-east-1"},
        ],
    ),
    ("AmazonVPC", "PublicIPv4:InUseAddress", [{"usd": "0.005"}]),
    ("AmazonVPC", "VpcEndpoint-Hours", [{"usd": "0.011"}]),
    ("AmazonEFS", "TimedStorage-ByteHrs", [{"usd": "0.33", "unit": "GB-Mo"}]),
    (
        *("AmazonEFS", "ETDataAccess-Bytes"),
        [
            {"usd": "0.033", "unit": "GB", "accessType": "Read"},
            {"usd": "0.066", "unit": "GB", "accessType": "Write"},
        ],
    ),
    (
        *("AWSELB", "LoadBalancerUsage"),
        [
            {"usd": "0.02646", "operation": "LoadBalancing"},
            {"usd": "0.02394", "operation": "LoadBalancing:Application"},
            {"usd": "0.02394", "operation": "LoadBalancing:Network"},
        ],
    ),
    ("AmazonEKS", "AmazonEKS-Hours:perCluster", [{"usd": "0.1"}]),
    ("AmazonEKS", "AmazonEKS-Hours:extendedSupport", [{"usd": "0.6", "unit": "Furlongs"}]),
]
OTHERS: list[tuple[dict[str, Any], list[str]]] = [
    *(
        (asked(service, usage(name)), [product(**{"usage_type": f"EUN1-{name}", **one}) for one in products])
        for service, name, products in USAGE
    ),
    (asked("AmazonMQ", *terms_of(**BROKERS)), [product("EUN1-RabbitUsage:mq.m7g.large", "0.2")]),
]
"""What is asked besides instance types, and the answers."""


def stub(stubbed: Stubber, answers: dict[str, list[str]]) -> None:
    for kind, products in answers.items():
        wanted = asked("AmazonEC2", *terms_of(instanceType=kind, **INSTANCES))
        stubbed.add_response("get_products", {"PriceList": products}, wanted)
    for wanted, products in OTHERS:
        stubbed.add_response("get_products", {"PriceList": products}, wanted)


def test_prices_of_all_regions_are_read_page_by_page(stubbed: Stubber) -> None:
    wanted = asked("AmazonEC2", *terms_of(instanceType="g6.xlarge", **INSTANCES))
    stubbed.add_response("get_products", {"PriceList": [], "NextToken": "more"}, wanted)
    in_govcloud = PRODUCT.replace("eu-west-1", "us-gov-west-1").replace("0.8980000000", "1.0")
    pages = {"PriceList": [PRODUCT, in_govcloud, ZONE, WAVELENGTH]}
    stubbed.add_response("get_products", pages, {**wanted, "NextToken": "more"})
    stub(stubbed, {"p5.48xlarge": []})
    with stubbed:
        reading = prices.read(stubbed.client, ["g6.xlarge", "p5.48xlarge", "g6.xlarge"])
        stubbed.assert_no_pending_responses()
    assert reading.prices == {
        "eu-north-1": {
            "ebs-gp3": 0.0836,
            "ebs-gp3-throughput": 0.0418,
            "nat-gateway": 0.046,
            "public-ipv4": 0.005,
            "interface-endpoint": 0.011,
            "efs-standard": 0.33,
            "efs-elastic-write": 0.066,
            "application-load-balancer": 0.02394,
            "eks-cluster": 0.1,
            "mq.m7g.large": 0.2,
        },
        "eu-west-1": {"g6.xlarge": 0.898},
        "us-east-1": {"nat-gateway": 0.045},
        "us-gov-west-1": {"g6.xlarge": 1.0},
    }
    assert reading.rejected == ["eks-cluster-extended-support in eu-north-1: unknown unit 'Furlongs'"]


def test_two_prices_of_one_type_are_rejected(stubbed: Stubber) -> None:
    stub(stubbed, {"g6.xlarge": [PRODUCT, PRODUCT.replace("0.8980000000", "1.0")]})
    with stubbed:
        reading = prices.read(stubbed.client, ["g6.xlarge"])
    assert "g6.xlarge in eu-west-1: 2 prices (0.898, 1), expected one" in reading.rejected
    assert "eu-west-1" not in reading.prices


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(price_tables, "PROJECT_FILE", tmp_path / "prices.json")
    return tmp_path / "prices.json"


def test_an_update_writes_what_was_read(
    stubbed: Stubber, monkeypatch: pytest.MonkeyPatch, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prices, "instance_types", lambda: ("g6.xlarge",))
    stub(stubbed, {"g6.xlarge": [PRODUCT]})
    monkeypatch.setattr(
        boto3, "client", lambda service, region_name: stubbed.client if service == "pricing" else region_name
    )
    spot = {"eu-west-1a": 0.5, "eu-west-1b": 0.4, "eu-west-1c": 0.45}

    def spot_prices(region: Any, _types: Any, _now: Any) -> dict[Pool, float]:
        if region != "eu-west-1":
            raise ValueError("not enabled")
        return {Pool("g6.xlarge", zone): price for zone, price in spot.items()}

    monkeypatch.setattr(prices.account, "spot_prices", spot_prices)
    with stubbed:
        assert prices.main() == 0
    error = capsys.readouterr().err
    assert f"14 prices of 3 regions written to {file}" in error.replace("\n", " ")
    assert "rejected: eks-cluster-extended-support in eu-north-1" in error
    by_region = {table.region: table for table in price_tables.parse(file.read_text())}
    assert by_region["eu-west-1"].usd == {
        "g6.xlarge": 0.898,
        "spot-low:g6.xlarge": 0.4,
        "spot-high:g6.xlarge": 0.5,
    }
    assert error.count("not enabled") == sum("g6.xlarge" in one.usd for one in by_region.values()) - 1
    assert by_region["eu-west-1"].source == "AWS Price List"


def test_a_failed_update_leaves_the_file_unchanged(
    stubbed: Stubber, monkeypatch: pytest.MonkeyPatch, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('{"tables": []}')
    stubbed.add_client_error("get_products", "AccessDeniedException", "not authorized")
    monkeypatch.setattr(boto3, "client", lambda service, region_name: stubbed.client)
    with stubbed:
        assert prices.main() == 1
    assert "cannot read the Price List" in capsys.readouterr().err
    assert file.read_text() == '{"tables": []}'
