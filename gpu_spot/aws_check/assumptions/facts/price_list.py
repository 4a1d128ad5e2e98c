"""The AWS Price List: that the queries of ``gpu-spot prices`` select one price each."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.forecast import price_list
from gpu_spot.forecast.price_list import Reading
from infra.catalogue import price_tables

_MODULE: Final = "gpu_spot/forecast/price_list.py"
_SOURCE: Final = 'AWS Billing guide, "Using the AWS Price List Query API"; GetProducts'
_NONE: Final = "moto has no Price List"


def _read(test_bed: AwsTestBed) -> Reading:
    """Read the prices of one type and of all items in all regions; some twenty requests."""
    return price_list.read(test_bed.clients("pricing"), ["g5.xlarge"])


@assumes(_SOURCE, _MODULE, "no price, or several", unsupported_reason=_NONE)
def one_price_of_a_type(test_bed: AwsTestBed) -> str:
    """The filters for Linux, shared tenancy and used capacity select one On-Demand price of a type."""
    reading = _read(test_bed)
    wrong = [line for line in reading.rejected if line.startswith("g5.xlarge")]
    prices = [usd["g5.xlarge"] for usd in reading.prices.values() if "g5.xlarge" in usd]
    if wrong or not prices:
        raise Falsified("; ".join(wrong) or "no region has a price")
    return f"one price in each of {len(prices)} regions"


@assumes(_SOURCE, _MODULE, "a usage type has no price, or several", unsupported_reason=_NONE)
def prices_of_usage_types(test_bed: AwsTestBed) -> str:
    """Each usage type of the other lines of the bill has one price in us-east-1."""
    reading = _read(test_bed)
    listed = reading.prices.get("us-east-1", {})
    if missing := sorted(price_tables.ITEMS.keys() - listed.keys()):
        raise Falsified(f"no price of {', '.join(missing)}; rejected: {'; '.join(reading.rejected)[:200]}")
    return ", ".join(f"{name} {listed[name]:g}" for name in price_tables.ITEMS)


@assumes(_SOURCE, _MODULE, "no broker type has a price", unsupported_reason=_NONE)
def prices_of_brokers(test_bed: AwsTestBed) -> str:
    """The Price List has RabbitMQ brokers as product family Broker Instances with their type."""
    listed = _read(test_bed).prices.get("us-east-1", {})
    brokers = {name: usd for name, usd in listed.items() if name.startswith("mq.")}
    if not brokers:
        raise Falsified("no product with a broker's type")
    return ", ".join(f"{name} {usd:g}" for name, usd in sorted(brokers.items()))[:300]
