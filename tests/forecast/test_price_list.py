"""Prices from the Price List (API reference, "GetProducts") and from a recorded history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpu_spot.cli import main
from gpu_spot.forecast import price_list
from gpu_spot.forecast.prices import spot_history
from infra.catalogue import price_tables
from lambdas.core.model import Pool

# Written after the form that the API reference gives, not recorded from AWS.
PRODUCT = Path(__file__).with_name("price_list.json").read_text("utf-8")


def table_text(**changes: Any) -> str:
    table = {"region": "eu-west-1", "date": "2026-11-24", "source": "x", "usd": {}, **changes}
    return json.dumps({"tables": [table]})


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return Stubber(boto3.client("pricing", region_name=price_list.REGION))


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
OTHERS: list[tuple[dict[str, Any], list[str]]] = [
    (
        asked("AmazonEC2", usage("EBS:VolumeUsage.gp3")),
        [product("EUN1-EBS:VolumeUsage.gp3", "0.0836", "GB-Mo")],
    ),
    (
        asked("AmazonEC2", usage("EBS:VolumeP-Throughput.gp3")),
        [product("EUN1-EBS:VolumeP-Throughput.gp3", "42.8032", "GiBps-mo")],
    ),
    (
        asked("AmazonEC2", usage("NatGateway-Hours")),
        [
            product("EUN1-NatGateway-Hours", "0.046"),
            product("EUN1-RegionalNatGateway-Hours", "0.092"),
            product("NatGateway-Hours", "0.045", region="us-east-1"),
        ],
    ),
    (
        asked("AmazonVPC", usage("PublicIPv4:InUseAddress")),
        [product("EUN1-PublicIPv4:InUseAddress", "0.005")],
    ),
    (asked("AmazonVPC", usage("VpcEndpoint-Hours")), [product("EUN1-VpcEndpoint-Hours", "0.011")]),
    (
        asked("AmazonEFS", usage("TimedStorage-ByteHrs")),
        [product("EUN1-TimedStorage-ByteHrs", "0.33", "GB-Mo")],
    ),
    (
        asked("AmazonEFS", usage("ETDataAccess-Bytes")),
        [
            product("EUN1-ETDataAccess-Bytes", "0.033", "GB", accessType="Read"),
            product("EUN1-ETDataAccess-Bytes", "0.066", "GB", accessType="Write"),
        ],
    ),
    (
        asked("AWSELB", usage("LoadBalancerUsage")),
        [
            product("EUN1-LoadBalancerUsage", "0.02646", operation="LoadBalancing"),
            product("EUN1-LoadBalancerUsage", "0.02394", operation="LoadBalancing:Application"),
            product("EUN1-LoadBalancerUsage", "0.02394", operation="LoadBalancing:Network"),
        ],
    ),
    (
        asked("AmazonEKS", usage("AmazonEKS-Hours:perCluster")),
        [product("EUN1-AmazonEKS-Hours:perCluster", "0.1")],
    ),
    (
        asked("AmazonEKS", usage("AmazonEKS-Hours:extendedSupport")),
        [product("EUN1-AmazonEKS-Hours:extendedSupport", "0.6", "Furlongs")],
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
        reading = price_list.read(stubbed.client, ["g6.xlarge", "p5.48xlarge", "g6.xlarge"])
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
        reading = price_list.read(stubbed.client, ["g6.xlarge"])
    assert "g6.xlarge in eu-west-1: 2 prices (0.898, 1), expected one" in reading.rejected
    assert "eu-west-1" not in reading.prices


def test_a_denied_request_is_reported(stubbed: Stubber) -> None:
    stubbed.add_client_error("get_products", "AccessDeniedException", "not authorized")
    with stubbed, pytest.raises(ValueError, match=r"cannot read the Price List: .*not authorized"):
        price_list.read(stubbed.client, ["g6.xlarge"])


def test_a_product_without_a_price_is_refused(stubbed: Stubber) -> None:
    stubbed.add_response("get_products", {"PriceList": [PRODUCT.replace('"USD": "0.898', '"CNY": "0.898')]})
    with stubbed, pytest.raises(ValueError, match=r"cannot parse the Price List's product for g6\.xlarge"):
        price_list.read(stubbed.client, ["g6.xlarge"])


@pytest.fixture
def project_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return the path of the project's file of prices, which does not exist yet."""
    file = tmp_path / "prices.json"
    monkeypatch.setattr(price_tables, "PROJECT_FILE", file)
    price_tables.forget()
    yield file
    price_tables.forget()


def run_update(stubbed: Stubber, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[str]]) -> int:
    monkeypatch.setattr(price_list, "instance_types", lambda: tuple(answers))
    stub(stubbed, answers)
    monkeypatch.setattr(boto3, "client", lambda service, region_name: stubbed.client)
    with stubbed:
        return main(["prices", "--update", "--region", "eu-north-1"])


def test_an_update_is_used_from_then_on(
    stubbed: Stubber, monkeypatch: pytest.MonkeyPatch, project_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = price_tables.find("g6.xlarge", "eu-west-1")
    assert run_update(stubbed, monkeypatch, {"g6.xlarge": [PRODUCT]}) == 0
    shown = capsys.readouterr()
    assert f"12 prices of 3 regions written to {project_file}" in shown.err.replace("\n", " ")
    assert "rejected: eks-cluster-extended-support in eu-north-1" in shown.err
    after = price_tables.find("g6.xlarge", "eu-west-1")
    assert before is None  # AWS's table of January does not have it
    assert after is not None
    assert (after.usd, after.source) == (0.898, "AWS Price List")
    # A price that the Price List does not have is still the shipped one, with its date.
    older = price_tables.find("g5.xlarge", "eu-west-1")
    assert older is not None
    assert older.date == "2026-01-21"
    assert "nat-gateway: an hour of a NAT gateway" in shown.out
    assert re.search(r"mq\.m7g\.large +0\.2 ", shown.out)
    assert main(["prices", "--json", "--region", "eu-north-1"]) == 0
    [document] = json.loads(capsys.readouterr().out)["regions"].values()
    assert document["prices"]["nat-gateway"]["usd"] == 0.046
    assert "p5e.48xlarge" in document["missing"]
    assert "ebs-gp3" not in document["missing"]


def test_a_failed_update_leaves_the_file_unchanged(
    stubbed: Stubber, monkeypatch: pytest.MonkeyPatch, project_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project_file.write_text('{"tables": []}')
    stubbed.add_client_error("get_products", "AccessDeniedException", "not authorized")
    monkeypatch.setattr(boto3, "client", lambda service, region_name: stubbed.client)
    with stubbed:
        assert main(["prices", "--update"]) == 2
    assert "cannot read the Price List" in capsys.readouterr().err
    assert project_file.read_text() == '{"tables": []}'


def test_what_is_at_hand_is_shown_by_region(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"eu-north-1 +41 of 78 +0 of 10 +0 +2026-01-21", shown)
    assert re.search(r"us-west-2 .* 9 of 10 .* 2026-01-21 to 2026-11", shown)
    assert re.search(r"No price: ap-east-2, .*mx-central-1\.", shown)
    assert main(["prices", "--region", "mars-1"]) == 2
    assert "--region is mars-1, allowed: af-south-1, " in capsys.readouterr().err


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
def test_an_invalid_file_of_prices_is_reported(
    text: str, says: str, project_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project_file.write_text(text)
    assert main(["prices"]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "write it again with gpu-spot prices --update" in error


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
