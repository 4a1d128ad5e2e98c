"""Spot prices, as ``DescribeSpotPriceHistory`` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.responses.spot_instances import SpotInstances

from pulumi_on_moto.fixes import Patches, local, naive
from pulumi_on_moto.fixes.speedups.cached_responses import changed

_PRODUCT: Final = "Linux/UNIX"
_FILTERS: Final = {"availability-zone": "AvailabilityZone", "instance-type": "InstanceType"}


def quote(backend: Any, prices: Mapping[tuple[str, str], float]) -> None:
    """Set the Spot prices (US dollars per hour) by type and zone from now on; others keep theirs."""
    changed()
    history: list[dict[str, Any]] = local(backend, "spot_prices", [])
    newest = {(price["InstanceType"], price["AvailabilityZone"]): price["SpotPrice"] for price in history}
    history += [
        {
            "InstanceType": instance_type,
            "AvailabilityZone": zone,
            "ProductDescription": _PRODUCT,
            "SpotPrice": text,
            "Timestamp": utcnow(),
        }
        for (instance_type, zone), price in prices.items()
        if newest.get((instance_type, zone)) != (text := f"{price:.6f}")
    ]


def _describe(response: SpotInstances) -> ActionResult:
    quoted: list[dict[str, Any]] = local(response.ec2_backend, "spot_prices", [])
    products = response._get_param("ProductDescriptions", [])
    filters = {_FILTERS[name]: values for name, values in response._filters_from_querystring().items()}
    if types := response._get_param("InstanceTypes", []):
        filters["InstanceType"] = types
    shown = [
        price
        for price in quoted
        if (not products or _PRODUCT in products)
        and all(price[key] in values for key, values in filters.items())
    ]
    begin, end = (naive(response._get_param(name)) for name in ("StartTime", "EndTime"))
    newest_before = {
        (price["InstanceType"], price["AvailabilityZone"]): price
        for price in shown
        if begin is not None and price["Timestamp"] <= begin
    }
    between = [
        price
        for price in shown
        if (begin is None or price["Timestamp"] > begin) and (end is None or price["Timestamp"] <= end)
    ]
    return ActionResult({"SpotPriceHistory": [*reversed(between), *newest_before.values()]})


PATCHES: Final[Patches] = ((SpotInstances, "describe_spot_price_history", _describe),)
