"""Spot prices over time, from EC2; also for ``gpu-spot jobs``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""Linux without a license; accounts that once had EC2-Classic get the second name. Source: experience."""
_MAX_PAGES: Final = 10
"""Of 1,000 prices each, the newest first."""


def read_spot_prices(
    ec2: Any, types: Iterable[str], zones: Iterable[str], begin: float, end: float
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the prices (US dollars an hour) by type and zone, each from an epoch second on.

    Between ``begin`` and ``end`` (epoch seconds), with the last one before ``begin``. Calls: one for each
    thousand prices, at most ten. Raises botocore's errors.
    Source: EC2 API reference, DescribeSpotPriceHistory.
    """
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=sorted(set(types)),
        ProductDescriptions=list(PRODUCTS),
        Filters=[{"Name": "availability-zone", "Values": sorted(set(zones))}],
        StartTime=datetime.fromtimestamp(begin, UTC),
        EndTime=datetime.fromtimestamp(end, UTC),
    )
    spot: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for page in islice(pages, _MAX_PAGES):
        for price in page["SpotPriceHistory"]:
            pool = price["InstanceType"], price["AvailabilityZone"]
            spot.setdefault(pool, []).append((price["Timestamp"].timestamp(), float(price["SpotPrice"])))
    return spot
