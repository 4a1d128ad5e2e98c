"""Read on-demand prices from the AWS Price List."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

REGION: Final = "us-east-1"
"""Where the Price List answers, for all regions (boto3 reference, "Pricing")."""
_FILTERS: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
"""What leaves one product of a type in a region: those of reservations have another ``capacitystatus``."""


def read(client: BaseClient, types: Iterable[str], region: str) -> tuple[dict[str, float], str]:
    """Return US dollars an hour by type, and the newest date from which one holds (``YYYY-MM-DD``).

    A type without a product there is left out. Raises ``ValueError`` where the Price List cannot be read or
    has two prices.
    """
    found: dict[str, float] = {}
    dates: list[str] = []
    for kind in sorted(set(types)):
        offered = {price: date for price, date in _offers(client, kind, region) if price > 0}
        if len(offered) > 1:
            raise ValueError(f"the Price List has {len(offered)} prices of {kind} in {region}, one is needed")
        for price, date in offered.items():
            found[kind] = price
            dates.append(date)
    return found, max(dates, default="")


def _offers(client: BaseClient, kind: str, region: str) -> list[tuple[float, str]]:
    wanted = {**_FILTERS, "instanceType": kind, "regionCode": region}
    pages = client.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
    )
    found = []
    try:
        for page in pages:
            for text in page["PriceList"]:
                product: Any = json.loads(text) if isinstance(text, str) else text
                for term in product["terms"].get("OnDemand", {}).values():
                    for dimension in term["priceDimensions"].values():
                        price = float(dimension["pricePerUnit"]["USD"])
                        found.append((price, str(term["effectiveDate"])[:10]))
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"the Price List cannot be read: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the Price List's product of {kind} makes no sense: {error!r}") from None
    return found
