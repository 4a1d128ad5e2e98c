"""Reads On-Demand prices from the AWS Price List."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

REGION: Final = "us-east-1"
"""Region of the Price List API, for all regions (boto3 reference, "Pricing")."""
_FILTERS: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
"""Select one product of a type in a region; reservations have another ``capacitystatus``."""


def read(client: BaseClient, types: Iterable[str], region: str) -> tuple[dict[str, float], str]:
    """Return US dollars per hour by type, and the newest effective date (``YYYY-MM-DD``).

    A type without a product in the region is omitted. Raises ``ValueError`` if the Price List cannot be read
    or has two prices.
    """
    prices: dict[str, float] = {}
    dates: list[str] = []
    for kind in sorted(set(types)):
        offered = {price: date for price, date in _offers(client, kind, region) if price > 0}
        if len(offered) > 1:
            raise ValueError(f"the Price List has {len(offered)} prices for {kind} in {region}, expected one")
        for price, date in offered.items():
            prices[kind] = price
            dates.append(date)
    return prices, max(dates, default="")


def _offers(client: BaseClient, kind: str, region: str) -> list[tuple[float, str]]:
    filters = {**_FILTERS, "instanceType": kind, "regionCode": region}
    pages = client.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
    )
    offers = []
    try:
        for page in pages:
            for text in page["PriceList"]:
                product: Any = json.loads(text) if isinstance(text, str) else text
                for term in product["terms"].get("OnDemand", {}).values():
                    for dimension in term["priceDimensions"].values():
                        price = float(dimension["pricePerUnit"]["USD"])
                        offers.append((price, str(term["effectiveDate"])[:10]))
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"cannot read the Price List: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"cannot parse the Price List's product for {kind}: {error!r}") from None
    return offers
