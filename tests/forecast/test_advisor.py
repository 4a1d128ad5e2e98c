"""The data file of the Spot Instance Advisor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_spot.forecast.advisor import Rate, read, with_savings, worst
from gpu_spot.forecast.prices import Prices
from lambdas.core.model import Pool


def data(**more: Any) -> str:
    systems = {"Linux": {"g6.xlarge": {"r": 1, "s": 70}}, "Windows": {"g6.xlarge": {"r": 0, "s": 1}}}
    labels = [{"index": 0, "label": "<5%", "max": 5}, {"index": 1, "label": "5-10%", "max": 11}]
    return json.dumps({"ranges": labels, "spot_advisor": {"us-west-2": systems, "eu-west-1": {}}} | more)


def test_rates_are_those_of_linux_by_region() -> None:
    assert read(data()) == {"us-west-2": {"g6.xlarge": Rate(1, "5-10%", 0.7)}, "eu-west-1": {}}


@pytest.mark.parametrize("wrong", ["{", "[]", "{}", data(ranges=[]), data(spot_advisor={"us-west-2": []})])
def test_another_file_is_rejected(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"invalid JSON|not the data of the Spot Instance Advisor"):
        read(wrong)


def test_the_worst_rate_of_types_is_unknown_if_one_is() -> None:
    rates = {"a": Rate(0, "<5%", 0.5), "b": Rate(4, ">20%", 0.7)}
    assert worst(rates, ("a", "b")) == rates["b"]
    assert worst(rates, ("a", "c")) is None


def test_savings_are_the_price_of_pools_without_one() -> None:
    known = Prices("us-west-2", spot={Pool("g6.xlarge", "us-west-2a"): 0.1})
    rates = {"g6.xlarge": Rate(0, "<5%", 0.75), "x1.unknown": Rate(0, "<5%", 0.5)}
    spot = with_savings(known, ("us-west-2a", "us-west-2b"), rates).spot
    assert spot[Pool("g6.xlarge", "us-west-2a")] == 0.1
    assert spot[Pool("g6.xlarge", "us-west-2b")] == pytest.approx(0.25 * 0.8048)
    assert len(spot) == 2
