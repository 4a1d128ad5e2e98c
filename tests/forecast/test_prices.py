"""Prices from tables, a recorded history, and the account; botocore validates its requests."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from contracts.jobs.attempt import JobAttempt
from gpu_spot.commands import forecast_inputs
from gpu_spot.errors import AwsRefusalError
from gpu_spot.forecast import account
from gpu_spot.forecast.prices import ASSUMED_SPOT, DRIFT, PRODUCTS, Prices, spot_history
from gpu_spot.forecast.ranges import Range
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
        (table_text(usd={"g6.xlarge": -1}), "must be a number above 0, not -1"),
        (table_text(usd={"g6.xlarge": True}), "must be a number above 0, not True"),
        (table_text(usd={"nat": 1}), "'nat' is not a price; use an instance type, or one of ebs-gp3"),
        (table_text(date="yesterday"), "a date such as"),
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


G6, HERE = 0.8048, Pool("g6.xlarge", "us-west-2a")
KINDS = [
    # the account's, a zone range, the mean of a month, and no price at all
    ("g6.xlarge", "us-west-2", {HERE: 0.402}, Range(0.402, 0.402, 0.402)),
    ("g6.xlarge", "us-west-2", {}, Range(0.39, (0.39 + 0.4541) / 2, 0.4541)),
    ("g6.2xlarge", "us-west-2", {}, DRIFT.times(0.46 * 0.9776)),
    ("g7.2xlarge", "us-east-1", {}, None),
]


CAPACITY = {"kind": "mixed-asg", "target": 1, "max": 2}


@pytest.mark.parametrize(("kind", "region", "spot", "dollars"), KINDS)
def test_a_spot_price_is_known_dated_or_varied(
    kind: str, region: str, spot: dict[Pool, float], dollars: Range | None
) -> None:
    prices = Prices(region, spot)
    capacity = Capacity.model_validate(CAPACITY | {"instanceTypes": (kind,)})
    on_demand = prices.on_demand_price(kind)
    assert on_demand is not None
    share = prices.share(Pool(kind, f"{region}a"), capacity)
    expected = ASSUMED_SPOT if dollars is None else dollars.times(1 / on_demand)
    for end in ("low", "middle", "high"):
        assert getattr(share, end) == pytest.approx(getattr(expected, end), rel=1e-3)
    assert prices.assumed([kind], [f"{region}a"]) == ([kind] if dollars is None else [])
    assert bool(prices.spot_sources([kind])) == (dollars is not None)


@pytest.mark.parametrize(
    ("known", "assumed", "said"),
    [
        ({}, True, "from x.json (none of these types and zones), otherwise assumed at"),
        ({"us-west-2a": 1.0}, True, "from x.json (none of these types and zones), otherwise assumed at"),
        ({"us-east-1a": 1.0}, True, "from x.json, otherwise assumed at 0.2 to 0.7 of On-Demand: g7.2xlarge"),
        ({"us-east-1a": 1.0, "us-east-1b": 1.0}, False, "from x.json, otherwise none"),
    ],
)
def test_prices_of_other_zones_are_not_said_to_be_those_of_the_stack(
    known: dict[str, float], assumed: bool, said: str
) -> None:
    """A file of us-west-2 was the source of a forecast for us-east-1, and no type was assumed in 1b."""
    types, zones = ["g7.2xlarge"], ["us-east-1a", "us-east-1b"]
    prices = Prices("us-east-1", {Pool(types[0], zone): usd for zone, usd in known.items()})
    assert prices.assumed(types, zones) == (types if assumed else [])
    args = argparse.Namespace(spot_prices=Path("x.json"), account=False)
    assert forecast_inputs.basis(args, prices, types, zones, None, {}).spot.startswith(said)


def test_a_newer_mean_counts_more_than_an_older_range_of_zones(project_file: Path) -> None:
    names = ("spot-low:g6.xlarge", "spot-high:g6.xlarge", "spot:g6.xlarge")
    [low, high, mean] = [{name: 0.3 + 0.1 * i} for i, name in enumerate(names)]
    for newer, older in ((mean, {**low, **high}), ({**low, **high}, mean)):
        tables = [
            {"region": "us-west-2", "date": date, "source": "x", "usd": usd}
            for date, usd in (("2027-02", newer), ("2027-01", older))
        ]
        project_file.write_text(json.dumps({"tables": tables}))
        price_tables.forget()
        assert Prices("us-west-2").spot_sources(["g6.xlarge"]) == [("2027-02", "x")]


def test_most_types_have_a_spot_price_where_they_have_an_on_demand_price() -> None:
    at_hand = [(t.region, name) for t in price_tables.at_hand() for name in t.usd]
    listed = {one for one in at_hand if one[1].partition(".")[0] in ("g4dn", "g5", "g6", "g6e", "p4d", "p5")}
    known = {(region, kind) for region, kind in listed if not Prices(region).assumed([kind], [f"{region}a"])}
    assert len(known) >= 0.85 * len(listed)


NOW = datetime(2026, 11, 22, tzinfo=UTC)
TYPES = ["g5.xlarge", "g6.xlarge"]


def sold(kind: str, zone: str, price: str, hour: int, product: str = PRODUCTS[0]) -> dict[str, Any]:
    return {
        **{"InstanceType": kind, "AvailabilityZone": zone, "SpotPrice": price},
        **{"ProductDescription": product, "Timestamp": NOW.replace(day=21, hour=hour)},
    }


def test_of_a_history_the_newest_price_of_linux_counts() -> None:
    changes = (("0.3", 2, PRODUCTS[0]), ("0.2", 1, PRODUCTS[0]), ("0.9", 3, "Windows"))
    rows = [sold("g6.xlarge", "us-west-2a", *change) for change in changes]
    text = json.dumps({"SpotPriceHistory": rows}, default=datetime.isoformat)
    assert spot_history(text) == {Pool("g6.xlarge", "us-west-2a"): 0.3}


@pytest.mark.parametrize("text", ["", "[]", '{"SpotPriceHistory": [{}]}', '{"SpotPriceHistory": 1}'])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not valid JSON|not a Spot price history): .+$"):
        spot_history(text)


@pytest.fixture
def ec2() -> Stubber:
    return Stubber(boto3.client("ec2", region_name="us-west-2"))


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
    # Five GPUs are two instances of four: the score is for a number of instances.
    groups["gpus"] = capacity(unit="gpus", target=5, instanceTypes=("g6.12xlarge",))
    asked = asked | {"InstanceTypes": ["g6.12xlarge"], "TargetCapacity": 2}
    ec2.add_response("get_spot_placement_scores", answer, asked)
    with ec2:
        assert account.placement_scores(ec2.client, groups, "us-west-2") == {"ocr": 7, "gpus": 7}
    ec2.assert_no_pending_responses()


def test_a_restarted_agents_attempts_are_of_the_same_instance_hours() -> None:
    def attempt(token: int, instance: str, launched: float, ended: float, end: str = "") -> JobAttempt:
        seen = (launched, ended, ended)
        return JobAttempt(token, "run", instance, "g6.xlarge", "a", "spot", "", *seen, ended=ended, end=end)

    hour = 3600.0
    first, again = attempt(1, "i-1", hour, 2 * hour), attempt(2, "i-1", hour, 4 * hour)
    last = attempt(3, "i-2", 4 * hour, 5 * hour, "done")
    assert account.run_hours([first, again, last]) == [pytest.approx(4.0)]
    assert account.run_hours([first, again]) == []  # not done


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
    sentence = r"^Spot (prices|placement score) of \w.*: .*not you; use a role that may do this$"
    with ec2, pytest.raises(AwsRefusalError, match=sentence) as caught:
        read(ec2.client)
    assert "\n" not in str(caught.value)
