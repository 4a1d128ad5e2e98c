"""List prices of permanent resources in US dollars; check them before budgeting.

Prices that differ by region are those of ``infra/catalogue/price_tables.py``: of the region, else of
us-east-1, and the result says which. The others here were read in November 2026 for us-east-1, from the pages
"Amazon CloudWatch pricing", "AWS Secrets Manager pricing", "AWS KMS pricing" and "AWS Lambda pricing" in
public copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from infra.catalogue import price_tables
from infra.catalogue.price_tables import ListPrice

READ: Final = "2026-11"
REGION: Final = "us-east-1"
_SAME_PRICES: Final = frozenset({"us-east-1", "us-east-2", "us-west-2"})
"""Regions with the prices of this module."""

HOURS: Final = 730
"""Hours per month, as in the AWS Pricing Calculator."""

ALARM_MONTH: Final = 0.10
DASHBOARD_MONTH: Final = 3.00
"""The first three dashboards of an account are free."""
KMS_KEY_MONTH: Final = 1.00
SECRET_MONTH: Final = 0.40
METRIC_MONTH: Final = 0.30
FIRST_METRICS: Final = 10_000
FURTHER_METRIC_MONTH: Final = 0.10
"""A custom metric, of the first 10,000, and of the next 240,000 ("Amazon CloudWatch pricing")."""
LOG_GB: Final = 0.50
"""Collected ("Amazon CloudWatch pricing")."""
WRITE_MILLION: Final = 0.625
READ_MILLION: Final = 0.125
"""On demand, of 1 KB and of 4 KB; an eventually consistent read costs half ("Amazon DynamoDB pricing")."""
QUEUE_MILLION: Final = 0.40
"""Requests to standard queues ("Amazon SQS pricing")."""
EFS_MIB_MONTH: Final = 6.00
EFS_READ_GB: Final = 0.03
EFS_WRITE_GB: Final = 0.06
"""Provisioned throughput of a MiB/s; elastic throughput ("Amazon EFS pricing")."""
LAMBDA_REQUEST: Final = 0.20 / 1_000_000
LAMBDA_GIB_SECOND: Final = 0.0000166667
"""x86 ("AWS Lambda pricing"); the free tier is not subtracted."""

STANDARD_SUPPORT_ENDS: Final = {"1.35": "2027-03-27"}
"""End of standard support of EKS by version, if known. Source: endoflife.date, "Amazon EKS"; the EKS guide
has AWS's calendar."""

_NODE_SIZE: Final = re.compile(r"(?P<family>[a-z0-9-]+)\.(?P<count>\d*)(?P<size>small|medium|large|xlarge)")
_OF_LARGE: Final = {"small": 0.25, "medium": 0.5, "large": 1.0, "xlarge": 2.0}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the bill: item, quantity, and US dollars per month for one.

    ``unit_price`` is None if no price is at hand, ``region`` the region whose price it is.
    ``is_in_tables`` is false for a price of this module, which an update of the tables does not change.
    """

    item: str
    count: float
    unit_price: float | None
    region: str = REGION
    date: str = READ
    is_in_tables: bool = True

    @property
    def cost(self) -> float:
        """US dollars per month; 0 without a price."""
        return self.count * (self.unit_price or 0.0)


def listed(item: str, count: float, unit_price: float, region: str) -> Line:
    """Return a line with a price of this module."""
    return Line(
        item, count, unit_price, region if region in _SAME_PRICES else REGION, READ, is_in_tables=False
    )


def priced(item: str, count: float, price: ListPrice | None, units: float = 1.0) -> Line:
    """Return a line with a price of a table, ``units`` of them per month."""
    if price is None:
        return Line(item, count, None)
    return Line(item, count, price.usd * units, price.region, price.date)


def of(name: str, region: str) -> ListPrice | None:
    """Return the price of an item or instance in a region, else in us-east-1; None if it is unknown."""
    return price_tables.find(name, region) or price_tables.find(name, REGION)


def node_hour(instance_type: str, region: str) -> ListPrice | None:
    """Return the hourly price of an instance type without accelerators, None if unknown.

    Within a family the price is proportional to the size.
    """
    exact = price_tables.find(instance_type, region)
    match = _NODE_SIZE.fullmatch(instance_type)
    if exact is not None or match is None:
        return exact
    large = of(f"{match['family']}.large", region)
    if large is None:
        return None
    return replace(large, usd=large.usd * int(match["count"] or 1) * _OF_LARGE[match["size"]])
